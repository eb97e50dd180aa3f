"""How texts are compared: one spelling for what a reader takes as the same.

Width, case, accents, digits of other scripts, look-alike letters and invisible characters make no difference.
"""

from __future__ import annotations

import re
import unicodedata

CJK = "\u3400-\u4dbf\u4e00-\u9fff"
"""Chinese characters, for the inside of a character class."""
_CHINESE = re.compile(f"[{CJK}]")
_BORDER = re.compile(f"(?<=[{CJK}])(?=[a-z0-9])|(?<=[a-z0-9])(?=[{CJK}])")
"""Chinese has no spaces: a Latin word or a number in it begins and ends here."""
_SPLIT_CJK = re.compile(rf"(?<=[{CJK}])[\s\-_.·•*~|/]+(?=[{CJK}])")
_SPELLED = re.compile(r"(?<![^\W_])[^\W_](?=([\s\-_.·•*~|/,:]{1,3}))(?:\1[^\W_](?![^\W_])){3,}")
"""Single letters or digits with the same separator between all of them."""
_NO_LETTER = re.compile(r"[\W_]+")
_LONG = re.compile(r"[!-~]{256}")
EXPANSION = 4
"""Characters that one character may become; what stands for more, such as a phrase in one ligature, is a space."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_LOOKALIKES = dict(
    zip(
        "аеіјорсухѕһԁԛԝᴏкАВЕІЈКМНОРСТУХЅԚԜαικνορτυχΑΒΕΗΙΚΜΝΟΡΤΥΧΖıɡɑʟ",
        "aeijopcyxshdqwokABEIJKMHOPCTYXSQWaikvoptuxABEHIKMNOPTYXZigal", strict=True,
    )
)  # fmt: skip
"""Cyrillic, Greek and phonetic letters that read as Latin ones."""


class _Visible(dict[int, int | str | None]):
    """Translation table: drops invisible characters, keeps line breaks, turns tabs into spaces. Fills itself."""

    def __missing__(self, code: int) -> int | str | None:
        self[code] = found = self._found(code)
        return found

    def _found(self, code: int) -> int | str | None:
        character = chr(code)
        if character in "\n\t":
            return " " if character == "\t" else code
        return None if unicodedata.category(character) in {"Cf", "Cc", "Cs", "Co"} else code


class _Plain(_Visible):
    """Drops accents as well, and writes digits and letters that look alike in one way."""

    def _found(self, code: int) -> int | str | None:
        character = chr(code)
        if unicodedata.category(character) in {"Mn", "Me"}:
            return None
        if unicodedata.category(character) == "Nd":
            return str(unicodedata.digit(character))
        if len(unicodedata.normalize("NFKD", character)) > EXPANSION:
            return " "
        return _LOOKALIKES.get(character) or super()._found(code)


_VISIBLE, _PLAIN = _Visible(), _Plain()


def strip_invisible(text: str) -> str:
    """Remove zero-width, bidi, control and unpaired surrogate characters; keep line breaks, turn tabs into spaces."""
    return _CONTROL.sub("", text.replace("\t", " ")) if text.isascii() else text.translate(_VISIBLE)


def fold(text: str) -> str:
    """Return the text as it is compared: folded characters, one space between words.

    Latin words and numbers are words of their own in Chinese text too, and a row of characters without end is cut, so
    that looking at it takes no time without end.
    """
    folded = strip_invisible(text).casefold() if text.isascii() else " ".join(map(_fold_line, text.split("\n")))
    return " ".join(_LONG.sub(r"\g<0> ", folded).split())


def _fold_line(line: str) -> str:
    if line.isascii():
        return strip_invisible(line).casefold()
    for form in ("NFKD", "NFKC"):
        line = unicodedata.normalize(form, line.translate(_PLAIN).casefold()).translate(_PLAIN)
    return _BORDER.sub(" ", line)


def collapse(text: str) -> str:
    """Join what was spelled character by character, in a text that is not folded yet: ``s c o r e``, ``评-分``."""
    joined = _SPELLED.sub(lambda found: found[0].replace(found[1], ""), text)
    return _SPLIT_CJK.sub("", joined)


def has_chinese(text: str) -> bool:
    """Say whether a text has a Chinese character."""
    return not text.isascii() and _CHINESE.search(text) is not None


def squeeze(folded: str) -> str:
    """Return letters and digits only."""
    return _NO_LETTER.sub("", folded)
