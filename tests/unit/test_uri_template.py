"""URI templates: expansion by the examples of RFC 6570, and matching, its reverse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lab.rows import every
from lab.wording import raises

from wirespeed.protocol.uri_template import MAX_URI, Matcher, UriTemplate, check_uri, is_path_escape

# The variables of RFC 6570 section 3.2.
VALUES: Mapping[str, Any] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
}

# Sections 1.2 and 3.2.1 to 3.2.9.
EXAMPLES = {
    "{var}": "value",
    "{hello}": "Hello%20World%21",
    "{half}": "50%25",
    "O{empty}X": "OX",
    "O{undef}X": "OX",
    "{x,y}": "1024,768",
    "{x,hello,y}": "1024,Hello%20World%21,768",
    "?{x,empty}": "?1024,",
    "?{x,undef}": "?1024",
    "?{undef,y}": "?768",
    "{var:3}": "val",
    "{var:30}": "value",
    "{list}": "red,green,blue",
    "{list*}": "red,green,blue",
    "{keys}": "semi,%3B,dot,.,comma,%2C",
    "{keys*}": "semi=%3B,dot=.,comma=%2C",
    "{+var}": "value",
    "{+hello}": "Hello%20World!",
    "{+half}": "50%25",
    "{base}index": "http%3A%2F%2Fexample.com%2Fhome%2Findex",
    "{+base}index": "http://example.com/home/index",
    "O{+empty}X": "OX",
    "O{+undef}X": "OX",
    "{+path}/here": "/foo/bar/here",
    "here?ref={+path}": "here?ref=/foo/bar",
    "up{+path}{var}/here": "up/foo/barvalue/here",
    "{+x,hello,y}": "1024,Hello%20World!,768",
    "{+path,x}/here": "/foo/bar,1024/here",
    "{+path:6}/here": "/foo/b/here",
    "{+list}": "red,green,blue",
    "{+list*}": "red,green,blue",
    "{+keys}": "semi,;,dot,.,comma,,",
    "{+keys*}": "semi=;,dot=.,comma=,",
    "{#var}": "#value",
    "{#hello}": "#Hello%20World!",
    "{#half}": "#50%25",
    "foo{#empty}": "foo#",
    "foo{#undef}": "foo",
    "{#x,hello,y}": "#1024,Hello%20World!,768",
    "{#path,x}/here": "#/foo/bar,1024/here",
    "{#path:6}/here": "#/foo/b/here",
    "{#list}": "#red,green,blue",
    "{#list*}": "#red,green,blue",
    "{#keys}": "#semi,;,dot,.,comma,,",
    "{#keys*}": "#semi=;,dot=.,comma=,",
    "{.who}": ".fred",
    "{.who,who}": ".fred.fred",
    "{.half,who}": ".50%25.fred",
    "www{.dom*}": "www.example.com",
    "X{.var}": "X.value",
    "X{.empty}": "X.",
    "X{.undef}": "X",
    "X{.var:3}": "X.val",
    "X{.list}": "X.red,green,blue",
    "X{.list*}": "X.red.green.blue",
    "X{.keys}": "X.semi,%3B,dot,.,comma,%2C",
    "X{.keys*}": "X.semi=%3B.dot=..comma=%2C",
    "X{.empty_keys}": "X",
    "X{.empty_keys*}": "X",
    "{/who}": "/fred",
    "{/who,who}": "/fred/fred",
    "{/half,who}": "/50%25/fred",
    "{/who,dub}": "/fred/me%2Ftoo",
    "{/var,empty}": "/value/",
    "{/var,undef}": "/value",
    "{/var,x}/here": "/value/1024/here",
    "{/var:1,var}": "/v/value",
    "{/list}": "/red,green,blue",
    "{/list*}": "/red/green/blue",
    "{/list*,path:4}": "/red/green/blue/%2Ffoo",
    "{/keys}": "/semi,%3B,dot,.,comma,%2C",
    "{/keys*}": "/semi=%3B/dot=./comma=%2C",
    "{;who}": ";who=fred",
    "{;half}": ";half=50%25",
    "{;empty}": ";empty",
    "{;v,empty,who}": ";v=6;empty;who=fred",
    "{;v,bar,who}": ";v=6;who=fred",
    "{;x,y,undef}": ";x=1024;y=768",
    "{;hello:5}": ";hello=Hello",
    "{;list}": ";list=red,green,blue",
    "{;list*}": ";list=red;list=green;list=blue",
    "{;keys}": ";keys=semi,%3B,dot,.,comma,%2C",
    "{;keys*}": ";semi=%3B;dot=.;comma=%2C",
    "{?who}": "?who=fred",
    "{?half}": "?half=50%25",
    "{?x,y}": "?x=1024&y=768",
    "{?x,y,empty}": "?x=1024&y=768&empty=",
    "{?x,y,undef}": "?x=1024&y=768",
    "{?var:3}": "?var=val",
    "{?list}": "?list=red,green,blue",
    "{?list*}": "?list=red&list=green&list=blue",
    "{?keys}": "?keys=semi,%3B,dot,.,comma,%2C",
    "{?keys*}": "?semi=%3B&dot=.&comma=%2C",
    "{&who}": "&who=fred",
    "?fixed=yes{&x}": "?fixed=yes&x=1024",
    "{&x,y,empty}": "&x=1024&y=768&empty=",
    "{&list*}": "&list=red&list=green&list=blue",
    "{&keys*}": "&semi=%3B&dot=.&comma=%2C",
    "{count}{count*}{/count}{/count*}": "one,two,threeone,two,three/one,two,three/one/two/three",
}


@every("template", EXAMPLES)
def test_expansion_is_that_of_the_rfc(template: str) -> None:
    assert UriTemplate(template).expand(VALUES) == EXAMPLES[template]


@every(
    ("template", "values", "uri"),
    [
        ("n://{a}/{b}/{c}", {"a": 5, "b": 1.5, "c": True}, "n://5/1.5/true"),
        ("n://{a}", {}, "n://"),
        ("n://{a}", {"a": "é€"}, "n://%C3%A9%E2%82%AC"),
        ("n://é", {}, "n://%C3%A9"),
        ("n://{+a}", {"a": "50%25 %"}, "n://50%25%20%25"),
        ("n://{a}", {"a": "50%25"}, "n://50%2525"),
        ("n://{a:2}", {"a": "éàü"}, "n://%C3%A9%C3%A0"),
        ("n://{a.b}/{%41}", {"a.b": "x", "%41": "y"}, "n://x/y"),
        ("n://{?list*}", {"list": ["a", None, ""]}, "n://?list=a&list="),
        ("n://{?list}", {"list": []}, "n://"),
        ("plain", {"x": 1}, "plain"),
        ("", {}, ""),
    ],
)
def test_expansion_beyond_the_examples(template: str, values: Any, uri: str) -> None:
    assert UriTemplate(template).expand(values) == uri
    assert UriTemplate(template).expand(**values) == uri


@every(
    ("template", "why"),
    [
        ("x{", "has no '}'"),
        ("x{var", "has no '}'"),
        ("x}", "'}' may not stand outside"),
        ("{}", "an expression without a variable"),
        ("{+}", "an expression without a variable"),
        ("{a,}", "'' is not a variable"),
        ("{a b}", "'a b' is not a variable"),
        ("{a-b}", "'a-b' is not a variable"),
        ("{.a.}", "'a.' is not a variable"),
        ("{a:0}", "'a:0' is not a variable"),
        ("{a:10000}", "'a:10000' is not a variable"),
        ("{a:3*}", "is not a variable"),
        ("{a{b}}", "is not a variable"),
        ("{=a}", "operator '=' is reserved"),
        ("{|a}", "operator '|' is reserved"),
        ("a b", "' ' may not stand outside"),
        ("100%", "'%' may not stand outside"),
        ("a\nb", "may not stand outside"),
        ("<{a}>", "'<' may not stand outside"),
    ],
)
def test_a_broken_template_says_what_is_wrong(template: str, why: str) -> None:
    with raises(ValueError) as caught:
        UriTemplate(template)
    assert why in str(caught.value)


def test_values_that_no_template_takes() -> None:
    with raises(ValueError):
        UriTemplate("{a:3}").expand(a=["x"])
    with raises(TypeError):
        UriTemplate("{a}").expand(a=object())
    with raises(TypeError):
        UriTemplate("{a}").expand(a=b"x")
    with pytest.raises(ValueError, match="surrogates"):
        UriTemplate("{a}").expand(a="\ud800")
    with raises(TypeError):
        UriTemplate(5)  # type: ignore[arg-type]


def test_a_template_is_a_value() -> None:
    one, other = UriTemplate("a://{b}/{c}{?b,d}"), UriTemplate("a://{b}/{c}{?b,d}")
    assert one == other and hash(one) == hash(other) and one != "a://{b}/{c}{?b,d}"
    assert one.names == ("b", "c", "d")
    assert str(one) == "a://{b}/{c}{?b,d}"
    assert repr(one) == "UriTemplate('a://{b}/{c}{?b,d}')"


# -- matching -------------------------------------------------------------------------------------


def match(template: str, uri: str, **options: Any) -> dict[str, str] | None:
    return Matcher(UriTemplate(template), **options).match(uri)


@every(
    ("template", "uri", "values"),
    [
        ("a://{x}", "a://1", {"x": "1"}),
        ("a://{x}", "a://", None),
        ("a://{x}", "a://1/2", None),
        ("a://{x}", "a://1?2", None),
        ("a://{x}", "a://1#2", None),
        ("a://{x}", "b://1", None),
        ("a://{x}", "A://1", None),
        ("a://{x}", "a://a b", {"x": "a b"}),
        ("a://{x}", "a://é", {"x": "é"}),
        ("a://{x}", "a://%C3%A9", {"x": "é"}),
        ("a://{x}", "a://a%2Fb", {"x": "a/b"}),
        ("a://{x}", "a://a%252Fb", {"x": "a%2Fb"}),
        ("a://{x}", "a://a+b", {"x": "a+b"}),
        ("a://{x}", "a://100%", None),
        ("a://{x}", "a://100%2", None),
        ("a://{x}", "a://%zz", None),
        ("a://{x}", "a://%ff", None),
        ("a://{x}/", "a://1/", {"x": "1"}),
        ("a://{x}/", "a://1", None),
        ("a://{x}/b", "a://1/b", {"x": "1"}),
        ("a://{x}/b/{y}", "a://1/b/2", {"x": "1", "y": "2"}),
        ("a://{x}/b/{y}", "a://1/c/2", None),
        ("a://{x}?y={y}", "a://1?y=2", {"x": "1", "y": "2"}),
        ("a://{+x}", "a://1/2?3#4", {"x": "1/2?3#4"}),
        ("a://{+x}", "a:///etc", {"x": "/etc"}),
        ("a://{+x}/end", "a://1/2/end", {"x": "1/2"}),
        ("a://{+x}/end", "a:///end", None),
        ("a://{x}.{y}", "a://1.2.3", {"x": "1.2", "y": "3"}),
        ("a://{x}.{y}", "a://1.", None),
        ("a://{x}-{+y}", "a://1-2-3/4-5", {"x": "1-2", "y": "3/4-5"}),
        ("a://{+x}/{y}", "a://1/2/3", {"x": "1/2", "y": "3"}),
        ("a://{+x}/{y}", "a://1/2/", None),
        ("a://{+x}x{y}", "a://p/x/xq", {"x": "p/x/", "y": "q"}),
        ("a://{x}-{+y}", "a://x-y/z-w", {"x": "x", "y": "y/z-w"}),
        ("a://{+x}/at/{+y}", "a://1/at/2/at/3", {"x": "1/at/2", "y": "3"}),
        ("a://{x}{#f}", "a://1#2#3", {"x": "1", "f": "2#3"}),
        ("a://{x}{#f}", "a://1", {"x": "1"}),
        ("a://{x}{#f}", "a://1#", {"x": "1", "f": ""}),
        ("a://{+x}{#f}", "a://1/2#%20", {"x": "1/2", "f": " "}),
        ("a://{x}{?q,n}", "a://1?q=a%26b&n=2", {"x": "1", "q": "a&b", "n": "2"}),
        ("a://{x}{?q,n}", "a://1?n=2", {"x": "1", "n": "2"}),
        ("a://{x}{?q,n}", "a://1", {"x": "1"}),
        ("a://{x}{?q,n}", "a://1?", {"x": "1"}),
        ("a://{x}{?q,n}", "a://1?q=", {"x": "1", "q": ""}),
        ("a://{x}{?q,n}", "a://1?q", {"x": "1", "q": ""}),
        ("a://{x}{?q,n}", "a://1?q=a+b=?c/d", {"x": "1", "q": "a+b=?c/d"}),
        ("a://{x}{?q,n}", "a://1?z=1", None),
        ("a://{x}{?q,n}", "a://1?x=1", None),
        ("a://{x}{?q,n}", "a://1?q=1&q=1", None),
        ("a://{x}{?q,n}", "a://1?q=1&", None),
        ("a://{x}{?q,n}", "a://1?q=%", None),
        ("a://{x}{?q,n}", "a://?q=1", None),
        ("a://b{?q}", "a://b?q=1", {"q": "1"}),
        ("a://b{?q}", "a://b", {}),
        ("a://b{?q}", "a://bc?q=1", None),
        ("a://{+x}{?q}", "a://1/2?q=3", {"x": "1/2", "q": "3"}),
        ("a://{+x}{?q}", "a://1?q=2?3", {"x": "1", "q": "2?3"}),
        ("a://{x}{?q}{#f}", "a://1?q=2#3?4", {"x": "1", "q": "2", "f": "3?4"}),
        ("a://{x}{?q}{#f}", "a://1#3?q=2", {"x": "1", "f": "3?q=2"}),
        ("a://b?l=en{&q}", "a://b?l=en", {}),
        ("a://b?l=en{&q}", "a://b?q=1&l=en", {"q": "1"}),
        ("a://b?l=en{&q}", "a://b?l=en&l=en", None),
        ("a://b?l=en{&q}", "a://b?q=1", None),
        ("a://b?l=en{&q}", "a://b?l=de&q=1", None),
        ("a://{x}/?l=en&m{&q}", "a://1/?m&q=2&l=en", {"x": "1", "q": "2"}),
        ("a://b{?q*,n}", "a://b?q=1&n=2&q=%263", {"q": ["1", "&3"], "n": "2"}),
        ("a://b{?q*,n}", "a://b?q=1", {"q": ["1"]}),
        ("a://b{?q*,n}", "a://b?q", {"q": [""]}),
        ("a://b{?q*,n}", "a://b", {}),
        ("a://b{?q*,n}", "a://b?n=1&n=2", None),
        ("a://b{?q*,n}", "a://b?q=1&q=%", None),
        ("a://b?l=en{&q*}", "a://b?q=1&l=en&q=2", {"q": ["1", "2"]}),
        ("a://é/{x}", "a://%C3%A9/1", {"x": "1"}),
        ("a://fixed", "a://fixed", {}),
        ("a://fixed", "a://fixedx", None),
        ("{x}", "1", {"x": "1"}),
        ("a{x}a", "a", None),
        ("a{x}a", "aba", {"x": "b"}),
    ],
)
def test_matching(template: str, uri: str, values: dict[str, Any] | None) -> None:
    assert match(template, uri) == values


@every(
    ("template", "uri"),
    [
        ("f://{x}", "f://.."),
        ("f://{x}", "f://%2e%2e"),
        ("f://{x}", "f://..%2Fetc"),
        ("f://{x}", "f://a%2F..%2F..%2Fetc"),
        ("f://{x}", "f://a%5C..%5Cetc"),
        ("f://{x}", "f://%2Fetc%2Fpasswd"),
        ("f://{x}", "f://%5Cserver"),
        ("f://{x}", "f://a%00b"),
        ("f://{+x}", "f://../etc"),
        ("f://{+x}", "f://a/../../etc"),
        ("f://{+x}", "f://a/%2e%2e/etc"),
        ("f://{+x}", "f://a/.%2E"),
        ("f://{+x}", "f://a\\..\\b"),
        ("f://{x}{#y}", "f://a#b/../c"),
        ("f://{x}.{y}", "f://..%2F.a"),
        ("f://{x}{?y}", "f://a?y=b/../c"),
        ("f://{x}{?y}", "f://a?y=/etc"),
        ("f://a?b{&y}", "f://a?b&y=%5C"),
        ("f://a{?y*}", "f://a?y=b&y=.."),
    ],
)
def test_values_that_lead_out_of_a_folder_match_nothing(template: str, uri: str) -> None:
    assert match(template, uri) is None
    assert match(template, uri, safe=False) is not None


@pytest.mark.parametrize(
    ("template", "uri", "value"),
    [
        ("f://{x}", "f://...", "..."),
        ("f://{x}", "f://a..b", "a..b"),
        ("f://{x}", "f://%252e%252e", "%2e%2e"),
        ("f://{+x}", "f://a/./b", "a/./b"),
        ("f://{+x}", "f://..a/b..", "..a/b.."),
    ],
)
def test_what_only_looks_like_an_escape_matches(template: str, uri: str, value: str) -> None:
    assert match(template, uri) == {"x": value}


def test_path_escapes() -> None:
    assert all(map(is_path_escape, ["..", "../a", "a/..", "a\\..\\b", "\0", "a\0b"]))
    assert not any(map(is_path_escape, ["", "a", "...", "a..", "/a", "a/b", "a/.../b"]))


@every(
    ("template", "why"),
    [
        ("a://{x}{y}", "stands right behind another variable"),
        ("a://{+x}{y}", "stands right behind another variable"),
        ("a://{x,y}", "one variable to an expression"),
        ("a://{x*}", "cannot be matched with a modifier"),
        ("a://{x:3}", "cannot be matched with a modifier"),
        ("a://{?x:3}", "cannot be matched with a modifier"),
        ("a://{?x,y:2}", "cannot be matched with a modifier"),
        ("a://{+x*}", "cannot be matched with a modifier"),
        ("a://b{#x*}", "cannot be matched with a modifier"),
        ("a://b{?x*,x}", "twice"),
        ("a://b?c{?x}", "two queries"),
        ("a://b?c/{x}?d{&y}", "two queries"),
        ("a://b{&x}", "{&x} stands behind a literal query"),
        ("a://b?c={x}{&y}", "{&y} stands behind a literal query"),
        ("{&x}", "{&x} stands behind a literal query"),
        ("a://b{?x}/c", "{?…} stands at the end"),
        ("a://b{?x}{?y}", "{?…} stands at the end"),
        ("a://b{#y}{?x}", "{#…} stands at the end"),
        ("a://{x}{?x}", "variable 'x' stands there twice"),
        ("a://{?x,x}", "variable 'x' stands there twice"),
        ("a://{/x}", "{/…} cannot be matched"),
        ("a://{.x}", "{.…} cannot be matched"),
        ("a://{#x}/b", "{#…} stands at the end"),
        ("a://b#{x}{#y}", "two fragments"),
        ("a://{x}/{x}", "variable 'x' stands there twice"),
        ("a://{x}{#x}", "variable 'x' stands there twice"),
    ],
)
def test_a_template_that_cannot_be_matched_says_why(template: str, why: str) -> None:
    with raises(ValueError) as caught:
        Matcher(UriTemplate(template))
    assert why in str(caught.value)


# Many ways to divide; each is divided in one pass for each variable.
@every(
    "template",
    ["{a}a{b}a{c}a{d}a{e}!", "{+a}/{+b}/{+c}/{+d}/{+e}!", "{+a}a/{b}", "{a}-{b}-{c}-{d}-{e}"],
)
@every("text", ["a", "/", "-", "a-", "%41"])
def test_no_uri_takes_long(template: str, text: str) -> None:
    matcher = Matcher(UriTemplate(template))
    uri = (text * 8000)[:8000]
    matcher.match(uri)
    matcher.match(uri + "!")
    matcher.match("!" + uri)


@every("template", ["a://x{?y*}", "a://x{?y*,z}", "a://x?u=1{&y*,z*}"])
@every("end", ["", "!", "&", "&y", "&u=1", "&z=%"])
def test_no_list_takes_long(template: str, end: str) -> None:
    Matcher(UriTemplate(template)).match("a://x?u=1&" + "&".join(["y=b,c"] * 2500) + end)


def test_a_uri_beyond_the_limit_matches_nothing() -> None:
    matcher = Matcher(UriTemplate("a://{x}"))
    longest = "a://" + "x" * (MAX_URI - 4)
    assert matcher.match(longest) is not None
    assert matcher.match(longest + "x") is None


literals = st.text("/.-ax", min_size=1, max_size=3)


class Parts(NamedTuple):
    head: str
    variables: list[tuple[bool, str]]  # whether simple, and the literal behind it
    tail: str
    fragment: str = ""

    def template(self) -> str:
        middle = "".join(
            f"{{{'' if simple else '+'}{name}}}{literal}"
            for name, (simple, literal) in zip("abc", self.variables, strict=False)
        )
        return self.head + middle + self.tail + self.fragment


@st.composite
def parts(draw: st.DrawFn) -> Parts:
    count = draw(st.integers(1, 3))
    behind = [draw(literals) for _ in range(count - 1)]
    return Parts(
        draw(st.text("/:ax", max_size=3)),
        [(draw(st.booleans()), literal) for literal in [*behind, ""]],
        draw(st.text("/.ax", max_size=2)),
        draw(st.sampled_from(["", "{#f}"])),
    )


def by_trying(variables: list[tuple[bool, str]], text: str) -> list[str] | None:
    """The longest-first division, by trying all."""
    simple, literal = variables[0]
    last = len(variables) == 1
    for end in range(len(text), 0, -1):
        if simple and set(text[:end]) & set("/?#"):
            continue
        if last:
            if end == len(text):
                return [text]
        elif text.startswith(literal, end):
            rest = by_trying(variables[1:], text[end + len(literal) :])
            if rest is not None:
                return [text[:end], *rest]
    return None


@given(parts(), st.text("/.-ax", max_size=12))
@example(Parts("", [(False, "x"), (True, "")], ""), "p/x/xq")
def test_the_division_is_the_first_of_all_by_length(parts: Parts, text: str) -> None:
    matcher = Matcher(UriTemplate(parts.template()), safe=False)
    found = matcher.match(parts.head + text + parts.tail)
    divided = None if found is None else list(found.values())
    assert divided == by_trying(parts.variables, text)


@given(
    st.sampled_from(
        ["a://{x}/{y}", "a://{x}/z/{y}{#z}", "a://q/{x}?{y}", "{x}", "a://{x}{?y,z}", "a://?{&z}"]
    ),
    st.text(min_size=1),
    st.text(min_size=1),
    st.text(),
)
def test_matching_reverses_expansion(template: str, x: str, y: str, z: str) -> None:
    parsed = UriTemplate(template)
    given = {"x": x, "y": y, "z": z}
    try:
        uri = parsed.expand(given)
    except UnicodeEncodeError:
        return
    expected = {name: given[name] for name in parsed.names}
    if "z" in expected and "%" in z:
        del expected["z"]  # what looks like an escape stays as it is in {#z}
        found = Matcher(parsed, safe=False).match(uri)
        assert found is not None and {k: v for k, v in found.items() if k != "z"} == expected
    else:
        assert Matcher(parsed, safe=False).match(uri) == expected


@given(st.lists(st.text()), st.text())
def test_matching_reverses_the_expansion_of_a_list(items: list[str], n: str) -> None:
    template = UriTemplate("a://b{?items*,n}")
    try:
        uri = template.expand(items=items, n=n)
    except UnicodeEncodeError:
        return
    expected = {"items": items, "n": n} if items else {"n": n}
    assert Matcher(template, safe=False).match(uri) == expected


@given(st.text(max_size=40))
def test_any_text_is_a_template_or_a_value_error(text: str) -> None:
    try:
        matcher = Matcher(UriTemplate(text))
    except ValueError:
        return
    matcher.match(text)


@every(
    "uri", ["file:///a/b.py", "x:", "config://app", "urn:isbn:1", "a+b-c.d://x?y=%20#z", "data:,'"]
)
def test_uris(uri: str) -> None:
    check_uri(uri)


@every(
    ("uri", "why"),
    [
        ("", "does not begin with a scheme"),
        ("/a/b", "does not begin with a scheme"),
        ("1a:b", "does not begin with a scheme"),
        ("file:///my file", "percent-encode ' ' as %20"),
        ("a:é", "percent-encode 'é' as %C3%A9"),
        ("a:100%", "percent-encode '%' as %25"),
        ("a:{x}", "percent-encode '{' as %7B"),
        ("a:\n", "as %0A"),
    ],
)
def test_what_is_no_uri(uri: str, why: str) -> None:
    with raises(ValueError) as caught:
        check_uri(uri)
    assert why in str(caught.value)


def test_a_uri_is_a_string() -> None:
    with raises(TypeError):
        check_uri(5)  # type: ignore[arg-type]
