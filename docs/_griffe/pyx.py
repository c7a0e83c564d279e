"""What the reference makes of docstrings.

* Signatures of compiled modules are in stubs (``.pyi``), their docstrings in the Cython source
  beside the stubs. That is not Python: the extension reads the headers of classes and functions and
  the string below each.
* ``**options: Unpack[Options]`` becomes the options, with types and descriptions.
* Public names in single backticks become links.
* ``::`` before a block of code, ``>>>``, roles (``:meth:``) and terms above their meaning become
  Markdown.
"""

from __future__ import annotations

import functools
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

DOCS = Path(__file__).resolve().parents[1]
REFERENCE = DOCS / "reference"
EXPORTS = DOCS.parent / "src" / "wirespeed" / "_exports.py"
SHOWN = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
QUOTED = re.compile(r"(?<!`)`([\w.]+)`(?!`)")
HEADER = re.compile(
    r"^( *)(?:cdef |async )*(?:class|def|cpdef) (?:\w+ )*?(\w+)\s*[(:]", re.MULTILINE
)
STRING = re.compile(r'\s*[rR]?"""(.*?)"""', re.DOTALL)
SIGNATURE_END = re.compile(r":[ \t]*(?:#[^\n]*)?\n")
TERM = re.compile(r"^((?:``)?\w+(?:``)?)\n(?=    \S)", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod):(?=`)")
SESSION = re.compile(r"^>>> .*\n(?:(?:>>> |\.\.\. |\.\.\.$).*\n)*", re.MULTILINE)
GROUP = re.compile(r"^( +)(\w+(?:, \w+)+):((?: .*)?(?:\n\1 +.*)*)$", re.MULTILINE)
BEFORE_CODE = re.compile(r"::$", re.MULTILINE)
ARGS = re.compile(r"^Args:\n(?:(?: .*)?\n)*", re.MULTILINE)
RAISES = re.compile(r"^Raises:\n", re.MULTILINE)
DESCRIBED_BY = re.compile(r"`([\w.]+)`(?:, which)? describes them")


def docstrings(source: str) -> Iterator[tuple[str, str]]:
    """Dotted names below the module, and their docstrings; the module's own has the name ""."""
    own = STRING.match(source)
    if own:
        yield "", inspect.cleandoc(own[1])
    path: list[tuple[int, str]] = []
    for header in HEADER.finditer(source):
        indent = len(header[1])
        while path and path[-1][0] >= indent:
            path.pop()
        path.append((indent, header[2]))
        end = SIGNATURE_END.search(source, header.end() - 1)
        found = end and STRING.match(source, end.end())
        if found:
            yield ".".join(name for _, name in path), inspect.cleandoc(found[1])


def one_each(group: re.Match[str]) -> str:
    """An entry of "Args:" for several parameters: one entry for each, as griffe wants it."""
    indent, first, *others = group[1], *group[2].split(", ")
    rest = [f"{indent}{name}: See ``{first}``." for name in others]
    return "\n".join([f"{indent}{first}:{group[3]}", *rest])


def _name_options(place: griffe.Module | griffe.Class) -> None:
    """``**options: Unpack[Options]`` becomes a parameter for each member of Options, described."""
    for member in place.members.values():
        if member.is_alias:
            continue
        if isinstance(member, griffe.Function):
            for function in (member, *(member.overloads or ())):
                _name_options_of(function)
        elif isinstance(member, (griffe.Module, griffe.Class)):
            _name_options(member)


def _name_options_of(function: griffe.Function) -> None:
    last = list(function.parameters)[-1:]
    if not last or last[0].kind is not griffe.ParameterKind.var_keyword:
        return
    given = last[0].annotation
    if not isinstance(given, griffe.ExprSubscript) or given.canonical_path != "typing.Unpack":
        return
    assert isinstance(given.slice, griffe.Expr)
    options = function.modules_collection[given.slice.canonical_path]
    del function.parameters[last[0].name]
    kind = griffe.ParameterKind.keyword_only
    classes = (options, *options.mro())
    members = {
        name: member
        for kept in classes
        for name, member in kept.members.items()
        if member.is_attribute
    }
    for name, member in members.items():
        if name in function.parameters:  # a positional-only one of the same meaning
            continue
        annotation = member.annotation
        default = "None" if str(annotation).endswith("| None") else "..."
        function.parameters.add(
            griffe.Parameter(name, annotation=annotation, kind=kind, default=default)
        )
    place: Any = function.parent if function.name == "__init__" else function
    if place.docstring is not None:
        known: dict[str, str] = {}
        for kept in classes:
            known = _described(kept, function) | known
        _add_entries(place.docstring, {name: known[name] for name in members if name in known})


def _described(options: griffe.Class, function: griffe.Function) -> dict[str, str]:
    """What the docstring of a TypedDict says of its members, or the one that it names says."""
    assert options.docstring is not None, options.path
    named = DESCRIBED_BY.search(options.docstring.value)
    if named is None:
        return _entries(options.docstring)
    first, _, method = named[1].partition(".")
    owner: Any = function.parent
    if owner.name != first:
        owner = options.module.members.get(first)
    place = owner and (owner.members[method] if method else owner)
    return _entries(place.docstring) if place and place.docstring else {}


def _entries(docstring: griffe.Docstring) -> dict[str, str]:
    """The entries of "Args:" and "Attributes:"."""
    kinds = (griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.attributes)
    single = griffe.Docstring(GROUP.sub(one_each, docstring.value), parent=docstring.parent)
    sections = single.parse("google", warnings=False)
    return {
        entry.name: entry.description
        for section in sections
        if section.kind in kinds
        for entry in section.value
    }


def _add_entries(docstring: griffe.Docstring, known: dict[str, str]) -> None:
    """Put entries that a docstring lacks at the end of its "Args:"."""
    own = _entries(docstring)
    added = "".join(
        f"    {name}: " + text.replace("\n", "\n        ") + "\n"
        for name, text in known.items()
        if name not in own
    )
    text = docstring.value + "\n"
    if not ARGS.search(text):
        text = RAISES.sub("Args:\n\n\\g<0>", text) if RAISES.search(text) else f"{text}\nArgs:\n"
    if added:
        docstring.value = ARGS.sub(lambda block: block[0].rstrip("\n") + f"\n{added}\n", text)


class _Links:
    """Public names in docstrings become links: ``Name``, ``Class.method``, ``method``."""

    def __init__(self, pkg: griffe.Module) -> None:
        homes = runpy.run_path(str(EXPORTS))["HOMES"]
        homes["wirespeed.errors"] = {"": pkg["errors"].exports}
        self.paths: dict[bool, dict[str, str]] = {False: {}, True: {}}  # outside, in LiteMCP
        for package, modules in homes.items():
            for name in (name for home in modules if home != package for name in modules[home]):
                if package == "wirespeed.litemcp":  # its names hide those of the other packages
                    self.paths[True][name] = f"{package}.{name}"
                else:
                    self.paths[False].setdefault(name, f"{package}.{name}")
        self.paths[True] = self.paths[False] | self.paths[True]
        pages = REFERENCE.glob("*.md")
        self.shown = {name for page in pages for name in SHOWN.findall(page.read_text("utf-8"))}
        self.members: dict[str, set[str]] = {}  # those that the reference shows
        for path in {*self.paths[True].values(), *self.paths[False].values()}:
            members = pkg[path.partition(".")[2]].all_members.values()
            self.members[path] = {m.name for m in members if m.has_docstring and m.name[0] != "_"}

    def put(self, place: griffe.Object, owner: str = "") -> None:
        """Into the docstrings of an object and of its members."""
        paths = self.paths[place.path.startswith("wirespeed.litemcp")]
        if place.is_class:
            owner = paths.get(place.name, owner)
        if place.docstring is not None:
            link = functools.partial(self._link, paths=paths, owner=owner)
            place.docstring.value = QUOTED.sub(link, place.docstring.value)
        for member in place.members.values():
            if not member.is_alias:
                self.put(member, owner)

    def _link(self, found: re.Match[str], paths: dict[str, str], owner: str) -> str:
        name, _, member = found[1].partition(".")
        if not member and name in self.members.get(owner, ()):
            return f"[{found[0]}][{owner}.{name}]"
        if found[1] in self.shown:
            return f"[{found[0]}][{found[1]}]"
        path = paths.get(name)
        if path is None or (member and member not in self.members[path]):
            return found[0]
        return f"[{found[0]}][{path}.{member}]" if member else f"[{found[0]}][{path}]"


class PyxDocstrings(griffe.Extension):
    """Changes docstrings and parameters before the pages are made."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        self._visit(pkg)
        _name_options(pkg)
        _Links(pkg).put(pkg)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        self._plain(obj)
        # griffe takes the parameters of a class from its `__init__`
        if isinstance(obj, griffe.Class) and "__init__" not in obj.members:
            new = obj.members.get("__new__")
            if isinstance(new, griffe.Function):
                init = griffe.Function("__init__", parameters=new.parameters, parent=obj)
                obj.set_member("__init__", init)

    def _plain(self, obj: griffe.Object) -> None:
        if obj.docstring is not None:
            plain = GROUP.sub(one_each, obj.docstring.value)
            text = TERM.sub(r"* \1:\n", BEFORE_CODE.sub(":", ROLE.sub("", plain)))
            obj.docstring.value = SESSION.sub(r"```pycon\n\g<0>```\n", text + "\n").rstrip()

    def _visit(self, module: griffe.Module) -> None:
        for member in list(module.modules.values()):
            if not member.is_alias:
                self._visit(member)
        path = module.filepath
        if not isinstance(path, Path) or path.suffix != ".pyi":
            return
        source = path.with_suffix(".pyx")
        if not source.exists():
            return
        for name, text in docstrings(source.read_text(encoding="utf-8")):
            target: Any = module
            for part in filter(None, name.split(".")):
                target = target.members.get(part)
                if target is None:
                    break
            if target is not None and not target.is_alias and target.docstring is None:
                target.docstring = griffe.Docstring(text, parent=target)
                self._plain(target)
