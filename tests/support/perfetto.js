// Opens a trace in Perfetto's own trace processor, the one built for browsers, and prints the rows of each query as a JSON list.
// node perfetto.js FOLDER TRACE QUERY...   FOLDER holds Perfetto's engine_bundle.js and trace_processor.wasm

const fs = require("fs");
const path = require("path");
const [folder, trace, ...queries] = process.argv.slice(2);

// the messages of its protocol, as far as they are needed (trace_processor.proto)

const APPEND = 1, FINALIZE = 2, QUERY = 3;
const REQUEST = 2, DATA = 101, SQL = 103, APPENDED = 201, RESULT = 203;
const NULL = 1, NUMBER = 2, TEXT = 4;

const varint = (number) => (number < 128 ? [number] : [(number % 128) | 128, ...varint(Math.floor(number / 128))]);
const whole = (field, number) => Buffer.from([...varint(field * 8), ...varint(number)]);
const nested = (field, content) => Buffer.concat([Buffer.from([...varint(field * 8 + 2), ...varint(content.length)]), content]);

function varints(buffer) {
  const found = [];
  for (let at = 0, number = 0n, shift = 0n; at < buffer.length; at++) {
    number |= BigInt(buffer[at] & 127) << shift;
    shift += 7n;
    if (buffer[at] < 128) [number, shift] = [(found.push(Number(BigInt.asIntN(64, number))), 0n), 0n];
  }
  return found;
}

function fields(buffer) {
  const found = new Map();
  const one = (at) => buffer.subarray(at, buffer.findIndex((byte, place) => place >= at && byte < 128) + 1);
  for (let at = 0; at < buffer.length; ) {
    const key = one(at), [number, first] = [varints(key)[0], one(at + key.length)];
    const begin = at + key.length + (number % 8 === 2 ? first.length : 0);
    at = begin + { 0: first.length, 1: 8, 2: varints(first)[0], 5: 4 }[number % 8];
    found.set(number >> 3, [...(found.get(number >> 3) ?? []), buffer.subarray(begin, at)]);
  }
  return found;
}

// the processor, which takes itself for a worker in a browser

const read = (name) => fs.readFileSync(path.join(folder, path.basename(name)));
class XMLHttpRequest {
  open(_, name) { this.response = new Uint8Array(read(name)).buffer; }
  send() {}
}
const self = { location: { href: "http://perfetto/engine_bundle.js" } };
const quiet = { log() {}, warn() {}, error: console.error };
const browser = { self, WorkerGlobalScope: Object, XMLHttpRequest, console: quiet, process: undefined, location: self.location };
new Function(...Object.keys(browser), read("engine_bundle.js").toString())(...Object.values(browser));

let replies = [];
const port = { postMessage: (reply) => replies.push(...fields(Buffer.from(reply)).get(1).map(fields)) };
self.onmessage({ data: port });

function ask(request, ...content) {
  replies = [];
  port.onmessage({ data: new Uint8Array(nested(1, Buffer.concat([whole(REQUEST, request), ...content]))) });
  return replies;
}

function refuse(errors) {
  for (const error of errors ?? []) throw new Error(error.toString());
}

function rows(query) {
  const results = ask(QUERY, nested(SQL, nested(1, Buffer.from(query)))).map((reply) => fields(reply.get(RESULT)[0]));
  results.forEach((result) => refuse(result.get(2)));
  const columns = results.flatMap((result) => result.get(1) ?? []).length;
  const values = results.flatMap((result) => result.get(3) ?? []).flatMap((batch) => {
    const of = fields(batch), number = varints(of.get(2)?.[0] ?? Buffer.of()), text = (of.get(5)?.[0] ?? "").toString().split("\0");
    return varints(of.get(1)?.[0] ?? Buffer.of()).map((kind) => ({ [NULL]: () => null, [NUMBER]: () => number.shift(), [TEXT]: () => text.shift() })[kind]());
  });
  return Array.from({ length: values.length / columns }, (_, row) => values.slice(row * columns, (row + 1) * columns));
}

setImmediate(() => {
  const content = fs.readFileSync(trace);
  for (let at = 0; at < content.length; at += 1 << 20)
    for (const reply of ask(APPEND, nested(DATA, content.subarray(at, at + (1 << 20))))) refuse(fields(reply.get(APPENDED)[0]).get(2));
  ask(FINALIZE);
  for (const query of queries) console.log(JSON.stringify(rows(query)));
});
