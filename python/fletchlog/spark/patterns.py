"""Regular expressions in Java's syntax, for `subscribePattern`: translated into Python's, or refused with a sentence.

Topic names are ASCII without line breaks, so every class of characters becomes the ASCII characters that it has. Java: `Pattern`, with `find`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import NoReturn

_ALL = frozenset(map(chr, range(128)))
_POSIX = {
    "Lower": frozenset(string.ascii_lowercase),
    "Upper": frozenset(string.ascii_uppercase),
    "ASCII": _ALL,
    "Alpha": frozenset(string.ascii_letters),
    "Digit": frozenset(string.digits),
    "Alnum": frozenset(string.ascii_letters + string.digits),
    "Punct": frozenset(string.punctuation),
    "Graph": frozenset(map(chr, range(33, 127))),
    "Print": frozenset(map(chr, range(32, 127))),
    "Blank": frozenset(" \t"),
    "Cntrl": frozenset(map(chr, [*range(32), 127])),
    "XDigit": frozenset(string.hexdigits),
    "Space": frozenset(" \t\n\v\f\r"),
}
_ESCAPED_SETS = {
    "d": _POSIX["Digit"],
    "s": _POSIX["Space"],
    "w": _POSIX["Alnum"] | {"_"},
    "h": _POSIX["Blank"],
    "v": frozenset("\n\v\f\r"),
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ANCHORS = {"b": r"\b", "B": r"\B", "A": r"\A", "G": r"\A", "Z": r"\Z", "z": r"\Z"}
_LOOKS = ("(?=", "(?!", "(?<=", "(?<!", "(?>", "(?:")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{[0-9]{1,9}(?:,(?:[0-9]{1,9})?)?\})[+?]?")
_NAME = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_LAST_OCTAL = 0o377
_LARGEST_CODE_POINT = 0x10FFFF


class PatternError(ValueError):
    """No pattern of Java's, or one that cannot be translated. The text says what and where."""


def compile_java(pattern: str) -> re.Pattern[str]:
    """What Java's `Pattern.compile(pattern)` matches, for topic names and `search`.

    Raises:
        PatternError: See there.
    """
    translated = _Translation(pattern).whole()
    try:
        return re.compile(translated)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(f"Python cannot match it: {error}") from None


class _Translation:
    """A pass over the pattern, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._groups = 0
        self._names: set[str] = set()
        self._flags: frozenset[str] = frozenset()

    def whole(self) -> str:
        """The pattern in Python's syntax."""
        translated = self._alternatives()
        if self._at < len(self._text):
            self._refuse("a parenthesis is closed that was not opened")
        return translated

    def _refuse(self, why: str) -> NoReturn:
        raise PatternError(f"{why}, at character {self._at + 1}")

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _next(self) -> str:
        character = self._peek()
        if not character:
            self._refuse("the pattern ends too early")
        self._at += 1
        return character

    def _takes(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _alternatives(self) -> str:
        """Up to the end or a closing parenthesis; flags that are set inside end there."""
        outside = self._flags
        parts = []
        while self._peek() not in {"", ")"}:
            parts.append("|" if self._takes("|") else self._quantified())
        self._flags = outside
        return "".join(parts)

    def _quantified(self) -> str:
        if self._takes("\\Q"):
            return self._quotation()
        if self._peek() in set("*+?{"):
            self._refuse(f"there is nothing to repeat before {self._peek()}")
        atom = self._atom()
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            if self._peek() == "{":
                self._refuse("{ begins no number of repetitions; write \\{ for the character")
            return atom
        if not atom or atom in _ANCHORS.values():
            self._refuse("an anchor or a flag cannot be repeated")
        self._at = found.end()
        if self._peek() in set("*+?{"):
            self._refuse("a repetition cannot be repeated; put parentheses around it")
        return atom + found[0]

    def _quotation(self) -> str:
        """A text that is taken as it is, up to its end mark."""
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at : end if end >= 0 else None]
        self._at = end + 2 if end >= 0 else len(self._text)
        if self._peek() in set("*+?{"):
            self._refuse("a quotation cannot be repeated; put parentheses around it")
        return "".join(map(self._literal, quoted))

    def _atom(self) -> str:
        character = self._peek()
        if character == "(":
            return self._group()
        self._at += 1
        match character:
            case "[":
                return _as_class(self._class())
            case ".":
                if "s" in self._flags:
                    return _as_class(_ALL)
                return _as_class(_ALL - frozenset("\n" if "d" in self._flags else "\n\r"))
            case "^":
                return r"\A"
            case "$":
                return r"\Z"
            case "\\":
                return self._escape()
        return self._literal(character)

    def _literal(self, character: str) -> str:
        return _as_class(_closed({character})) if "i" in self._flags and character in _POSIX["Alpha"] else re.escape(character)

    def _group(self) -> str:
        opening = next((look for look in _LOOKS if self._text.startswith(look, self._at)), None)
        if opening is not None:
            self._at += len(opening)
            return opening + self._closing()
        if self._text.startswith("(?<", self._at):
            self._at += 2
            return f"(?P<{self._new_name()}>" + self._closing()
        if self._text.startswith("(?", self._at):
            return self._flag_group()
        self._at += 1
        self._groups += 1
        return "(" + self._closing()

    def _closing(self) -> str:
        inner = self._alternatives()
        if not self._takes(")"):
            self._refuse("a parenthesis is not closed")
        return inner + ")"

    def _new_name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            self._refuse("a group's name has letters and digits, and begins with a letter")
        if found[1] in self._names:
            self._refuse(f"there is a group {found[1]} already")
        self._at = found.end()
        self._groups += 1
        self._names.add(found[1])
        return found[1]

    def _flag_group(self) -> str:
        found = _FLAGS.match(self._text, self._at)
        if found is None:
            self._refuse("this kind of group is not known")
        on, off = set(found[1]), set(found[2] or "")
        for flag in sorted(on | off):
            if flag not in set("idmsu"):
                self._refuse(f"the flag {flag} is not supported; i, d, m, s and u are")
        self._at = found.end()
        outside, self._flags = self._flags, (self._flags | on) - off
        if found[3] == ")":  # up to the end of the group that is open
            return ""
        inner = self._closing()
        self._flags = outside
        return "(?:" + inner

    def _escape(self) -> str:
        """After a backslash, outside of a class."""
        character = self._peek()
        if character in set("bBAGZz"):
            self._at += 1
            if character == "b" and self._peek() == "{":
                self._refuse("\\b{g} is not supported")
            return _ANCHORS[character]
        if character == "R":
            self._at += 1
            return r"(?>\r\n|[\n-\r])"
        if character == "k":
            self._at += 1
            found = _NAME.match(self._text, self._at)
            if found is None or found[1] not in self._names:
                self._refuse("\\k names no group before it")
            self._at = found.end()
            return self._reference(f"(?P={found[1]})")
        if character.isdecimal() and character in set("123456789"):
            return self._numbered()
        found_set = self._escaped_set()
        return _as_class(found_set) if found_set is not None else self._literal(self._escaped_character())

    def _numbered(self) -> str:
        """As many digits as there are groups for; one at least."""
        number = int(self._next())
        while self._peek() in set(string.digits) - {""} and int(f"{number}{self._peek()}") <= self._groups:
            number = int(f"{number}{self._next()}")
        if number > self._groups:
            self._refuse(f"there is no group {number} before \\{number}")
        return self._reference(f"(?:\\{number})")

    def _reference(self, text: str) -> str:
        return f"(?i:{text})" if "i" in self._flags else text

    def _escaped_set(self) -> frozenset[str] | None:
        """After a backslash: a class of characters. None, and nothing taken: it is no class."""
        character = self._peek()
        if character in {"p", "P"}:
            self._at += 1
            found = self._property()
        elif character and character.lower() in _ESCAPED_SETS:
            self._at += 1
            found = _ESCAPED_SETS[character.lower()]
        else:
            return None
        if "i" in self._flags:
            found = _closed(found)
        return _ALL - found if character.isupper() else found

    def _property(self) -> frozenset[str]:
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            if end < 0:
                self._refuse("\\p{ is not closed")
            name, self._at = self._text[self._at : end], end + 1
        if name in _POSIX:
            return _POSIX[name]
        category = name.removeprefix("Is")
        found = frozenset(c for c in _ALL if unicodedata.category(c).startswith(category))
        if not category or not found:
            self._refuse(f"the property {name} is not supported; {', '.join(_POSIX)} and Unicode's categories (L, Lu, Nd, ..) are")
        return found

    def _escaped_character(self) -> str:
        """After a backslash."""
        character = self._next()
        if character in _CONTROLS:
            return _CONTROLS[character]
        match character:
            case "0":
                return self._octal()
            case "x":
                if self._takes("{"):
                    end = self._text.find("}", self._at)
                    digits = self._text[self._at : max(end, self._at)]
                    self._at += len(digits) + 1
                    return self._of_hex(digits, 1, 8)
                return self._of_hex(self._taken(2), 2, 2)
            case "u":
                return self._of_hex(self._taken(4), 4, 4)
            case "c":
                return chr(ord(self._next()) ^ 64)
        if character.isascii() and character.isalpha():
            self._refuse(f"\\{character} is not supported")
        return character

    def _taken(self, count: int) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def _of_hex(self, digits: str, least: int, most: int) -> str:
        if not least <= len(digits) <= most or not set(digits) <= _POSIX["XDigit"] or int(digits, 16) > _LARGEST_CODE_POINT:
            self._refuse("a character's number is not hexadecimal, or too large")
        return chr(int(digits, 16))

    def _octal(self) -> str:
        digits = ""
        while len(digits) < 3 and self._peek() in set("01234567") and int(digits + self._peek(), 8) <= _LAST_OCTAL:  # noqa: PLR2004 - \0377 is the last
            digits += self._next()
        if not digits:
            self._refuse("\\0 needs octal digits")
        return chr(int(digits, 8))

    def _class(self) -> frozenset[str]:
        """After `[`, with its `]`. Nested classes are united; `&&` binds less than that, and `^` is for all of it."""
        negated = self._takes("^")
        operands: list[frozenset[str]] = []
        current: frozenset[str] | None = None
        while True:
            if self._takes("&&"):
                if current is None or self._peek() in {"]", "&"}:
                    self._refuse("&& needs characters on both sides")
                operands.append(current)
                current = None
                continue
            if self._peek() == "]" and (current is not None or operands):
                break
            current = (current or frozenset()) | self._class_item()
        self._at += 1
        if current is None:
            self._refuse("&& needs characters on both sides")
        for operand in operands:
            current &= operand
        return _ALL - current if negated else current

    def _class_item(self) -> frozenset[str]:
        if self._takes("["):
            return self._class()
        if self._takes("\\Q"):
            end = self._text.find("\\E", self._at)
            if end < 0:
                self._refuse("\\Q is not closed by \\E in a class")
            quoted = self._text[self._at : end]
            self._at = end + 2
            if not quoted or self._peek() == "-":
                self._refuse("a quotation in a class is empty or begins a range; write the characters with \\")
            return self._set_of(quoted)
        first = self._class_character()
        if isinstance(first, frozenset):
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in {"]", ""}:
                self._refuse("a range cannot begin with a class; write \\- for the character")
            return first
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in {"]", "[", ""}:
            return self._set_of(first)
        self._at += 1
        last = self._class_character()
        if isinstance(last, frozenset) or last < first:
            self._refuse("a range ends with a class, or before its beginning")
        return self._set_of(c for c in _ALL if first <= c <= last)

    def _class_character(self) -> str | frozenset[str]:
        character = self._next()
        if character == "&" and self._peek() == "&":
            self._refuse("&& needs characters on both sides")
        if character != "\\":
            return character
        found = self._escaped_set()
        return self._escaped_character() if found is None else found

    def _set_of(self, characters: object) -> frozenset[str]:
        found = frozenset(characters) & _ALL  # type: ignore[call-overload]
        return _closed(found) if "i" in self._flags else found


def _closed(characters: set[str] | frozenset[str]) -> frozenset[str]:
    """With both cases of each."""
    return frozenset(c for of in characters for c in (of.lower(), of.upper()))


def _as_class(characters: frozenset[str]) -> str:
    """In Python's syntax; of no character at all: what never matches."""
    return "[" + "".join(f"\\x{ord(c):02x}" for c in sorted(characters)) + "]" if characters else "(?!)"
