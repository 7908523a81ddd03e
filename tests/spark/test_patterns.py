"""Patterns of topics in Java's syntax: Java itself says what they match."""

import re
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from fletchlog._core import find_topics
from fletchlog.errors import InvalidArgumentError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

NAMES = ["a", "A", "ab", "aB", "orders", "orders-1", "orders.eu", "Orders_2", "a.b", "a-b", "aa", "aab", "abab", "0", "9z", "__x", "-", ".x", "a1b22", "zzz"]


@pytest.fixture(scope="module")
def java(spark):
    """The names in which Java's pattern is found, as Spark looks for it; None if it is no pattern."""
    api = spark._jvm.java.util.regex.Pattern

    def ask(pattern, names):
        try:
            compiled = api.compile(pattern)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() not in {"PatternSyntaxException", "IllegalArgumentException"}:
                raise
            return None
        return [name for name in names if compiled.matcher(name).find()]

    return ask


@pytest.mark.parametrize(
    "pattern",
    [
        r"orders.*",
        r"(?<of>a+)b\k<of>?b*",
        r"\Qa.b\E|\Qa",
        r"\Q\E",
        r"[\p{Alpha}&&[^o]]+",
        r"\p{L}+",
        r"\P{Lu}+",
        r"\pL\p{IsLl}",
        r"[^\p{Punct}]+",
        r"\x61\x{62}",
        r"\u0061\0142",
        r"\h*a\H",
        r"(?i)ORDERS-\d",
        r"a(?i)b|O.*",
        r"(?i:a)B",
        r"(?i)\p{Lower}+",
        r"(?i)(a)b\1\B.",
        r"[a-c[x-z]]+",
        r"[a-z&&[^b-y]]+",
        r"[^a-z&&[b-y]]+",
        r"[^a[b]]+",
        r"[-a]+",
        r"[a-]+",
        r"[]a]+",
        r"[a\-z]+",
        r"[\Qa-\E.]+",
        r"[\w.]++",
        r"a*+b",
        r"(?>a|ab)b",
        r"(?=a)..",
        r"(?<!b)a{1,2}b",
        r"^a$",
        r"\Aa\z|\ba\b",
        r"(a)(b)?\2",
        r"(a)b\11?",
        r"a{2}b?",
        r"\w+(?<=[12])",
        r"[\d[_]]+.",
        r"(?s).+",
        r"(?-i)a",
        r"\cA|a",
        r"[^\W_]+",
        r"a|",
        r"]",
        r"}",
        r"a\R?",
        r"(?x) a b # a comment",
        r"(?x:[a b] +) [_2]|a",
        r"(?x:a) |zz",
        r"(a)(b)?\1\Q0\E?",
        r"(a)\Q1\Eb",
        r"a\Q\E+b",
        r"\Qab\E+$",
        r"a{1,2}+b",
        r"(?:a|ab){1,2}+b",
        r"[+--]",
        r"[[:alpha:]]",
        r"[\d-z]+b",
        r"[a&&[ab]&&a-c]b",
        r"[~~]|#",
        r"\p{gc=Lu}|\p{IsDigit}",
        r"\p{IsLatin}{3}",
        r"\Gb|\Ga",
        r"(?<!^)a",
        r"\e|\x{2d}",
        r"(?-i:a)(?idmsuxU-i)b",
    ],
)
def test_a_pattern_matches_what_it_matches_in_java(java, pattern):
    assert find_topics(pattern, NAMES) == java(pattern, NAMES)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"a{", "begins no number of repetitions"),
        (r"a{,3}", "begins no number of repetitions"),
        (r"*a", "nothing to repeat before \\*, at character 1"),
        (r"a**", "nothing to repeat before \\*, at character 3"),
        (r"a{2}{3}", "nothing to repeat before {"),
        (r"(?i)*", "nothing to repeat"),
        (r"(a", "not closed"),
        (r"a)", "not opened"),
        (r"[a", "a class is not closed"),
        (r"[a&&]", "&& needs characters on both sides"),
        (r"[&&a]", "&& needs characters on both sides"),
        (r"[a-z&&[b]c&&d]", "put brackets around"),
        (r"[z-a]", "before its beginning"),
        (r"[a-\d]", "ends with a class"),
        (r"[\b]", r"\\b is not supported"),
        (r"\y", r"\\y is not supported"),
        (r"\X", r"\\X is not supported"),
        (r"\b{g}", r"\\b{g} is not supported"),
        (r"\p{Greek}", "the property Greek is not known"),
        (r"\p{lu}", "the property lu is not known"),
        (r"\p{InGreek}", "blocks of Unicode are not supported"),
        (r"\1(a)", "no group 1 before"),
        (r"\k<a>(?<a>b)", "names no group before it"),
        (r"(?<a>b)(?<a>c)", "there is a group a already"),
        (r"(?<a_b>b)", "a group's name has letters and digits"),
        (r"(?P<a>b)", r"\(\?P begins no group and is no flag"),
        (r"(?<=a+)b", "look-behind has no obvious maximum"),
        (r"(?<=a{2,})b", "look-behind has no obvious maximum"),
        (r"\u{61}", "number is malformed"),
        (r"\x6", "number is malformed"),
        ("a\\", "ends with a single"),
    ],
)
def test_what_cannot_be_used_is_said(pattern, why):
    with pytest.raises(InvalidArgumentError, match=why):
        find_topics(pattern, [])


CHARACTERS = st.sampled_from(string.ascii_letters + string.digits + "._-")
IN_CLASS = st.one_of(
    CHARACTERS.map(lambda c: re.escape(c) if c in ".-" else c),
    st.sampled_from([r"\d", r"\w", r"\W", r"\p{Alpha}", r"\p{Upper}", r"\P{Lower}", r"\s", r"\h", "a-f", "0-7", "A-Z", r"\x41-\x{46}", r"\Q.-\E", r"\p{Lu}"]),
)


def classes(inner):
    items = st.lists(st.one_of(IN_CLASS, inner), min_size=1, max_size=3).map("".join)
    both = st.tuples(items, items).map("&&".join)
    return st.tuples(st.sampled_from(["", "^"]), st.one_of(items, both)).map(lambda parts: f"[{parts[0]}{parts[1]}]")


ATOMS = st.one_of(
    CHARACTERS.map(re.escape),
    st.sampled_from([".", r"\d", r"\D", r"\w", r"\p{Punct}", r"\p{Alnum}", r"\pL", r"\x{61}", r"\Qa.\E", r"\b", "^", "$", r"\1", r"\12", r"\R", r"\0141"]),
    classes(classes(st.nothing())),
)


QUANTIFIERS = st.sampled_from(["", "?", "*", "+", "{2}", "{1,3}", "*?", "++", "{1,}", "?+", "{1,2}+", "{0,2}?"])


def larger(inner):
    group = st.sampled_from(["(", "(?:", "(?i:", "(?>", "(?=", "(?!", "(?i)(?:", "(?-i:", "(?x: ", "(?<=", "(?<!"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(group, st.lists(inner, min_size=1, max_size=2).map("|".join), QUANTIFIERS).map(lambda parts: f"{parts[0]}{parts[1]}){parts[2]}"),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    pattern=st.recursive(st.tuples(ATOMS, QUANTIFIERS).map("".join), larger, max_leaves=8),
    names=st.lists(st.text(CHARACTERS, min_size=1, max_size=6), min_size=4, max_size=6),
)
def test_any_pattern_is_refused_or_matches_what_it_matches_in_java(java, pattern, names):
    try:
        found = find_topics(pattern, [*names, "a", "aB", "orders-1"])
    except InvalidArgumentError:
        return
    assert found == java(pattern, [*names, "a", "aB", "orders-1"])


def test_a_subscription_takes_a_pattern_of_java(log, read):
    for topic in ("orders-eu", "orders-us", "Orders-x"):
        log.topic(topic).append(topic, 0, 2)
    assert {row.topic for row in read(subscribePattern=r"(?<what>orders)-\p{Lower}{2}").collect()} == {"orders-eu", "orders-us"}
    with pytest.raises(PySparkException, match=r"option subscribePattern: .*begins no number of repetitions"):
        read(subscribePattern="orders{")
