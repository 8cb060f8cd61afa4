"""Texts as XML can hold them."""

import html
import re

NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML does not allow."""


def xml_text(text: str) -> str:
    """Returns a text between two tags: without markup, ? for characters that XML does not allow.

    >>> xml_text("a<b> & c")
    'a&lt;b&gt; &amp; c'
    """
    return html.escape(NOT_XML.sub("?", text), quote=False)
