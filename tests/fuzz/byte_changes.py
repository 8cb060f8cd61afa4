"""Changes the bytes of any file."""

from random import Random

TOKENS = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b"\n", b"\0", b"null", b"-1", b"1e400"),
    *(b"\xff" * 9, b"9" * 400, b"[" * 3000, b"\x80\x80\x80\x80\x08"),
]


def changed_bytes(text: bytes, random: Random) -> bytes:
    """The text with a stretch of it lost, doubled, moved, or overwritten."""
    begin, elsewhere = random.randrange(len(text) + 1), random.randrange(len(text) + 1)
    end, token = begin + random.choice([1, 2, 10, 100, 1000]), random.choice(TOKENS)
    flipped = bytes(byte ^ 1 << random.randrange(8) for byte in text[begin : begin + 1])
    return random.choice(
        [
            text[:begin],
            text[:begin] + text[end:],
            text[:end] + text[begin:],
            text[:begin] + token + text[begin:],
            text[:begin] + token + text[begin + len(token) :],
            text[:begin] + text[elsewhere : elsewhere + end - begin] + text[end:],
            text[:begin] + bytes(len(text[begin:end])) + text[end:],
            text[:begin] + flipped + text[begin + 1 :],
        ]
    )
