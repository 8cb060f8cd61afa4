// Search runs in a Worker, and browsers start none on a page that was opened as a file. There this class takes the
// Worker's place: it runs the same script in a hidden frame. The name of this file tells the plugin `offline` of
// mkdocs-material that it need not load another one from the network.
if (location.protocol === "file:") {
  const load = (scope, url) =>
    new Promise((loaded, failed) => {
      const script = scope.document.createElement("script")
      script.src = url
      script.onload = loaded
      script.onerror = failed
      scope.document.body.append(script)
    })

  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      this.scope = this.frame.contentWindow
      this.scope.document.open()
      this.scope.document.write("<body></body>")
      this.scope.document.close()
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.scope.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => load(this.scope, each)), Promise.resolve())
      this.ready = load(this.scope, url)
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new this.scope.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
