"""Writes the handle classes of data types, from the operations that the types declare.

`python -m crdtcast.handle_source` rewrites the modules of handles, for the types of this package.
`python -m crdtcast.handle_source my.module:Poll` prints handle classes for your own type.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import cleandoc
from keyword import iskeyword
from pathlib import Path
from textwrap import wrap
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin

from crdtcast import datatypes
from crdtcast.datatypes import Operation, PureOpCRDT
from crdtcast.datatypes.operations import accepted
from crdtcast.replica.handle import BatchHandle, BatchOwner, Handle, ObjectOwner
from crdtcast.replica.objects import known_types
from crdtcast.sync.handle import HandleOwner, SyncHandle

CRDT: TypeAlias = type[PureOpCRDT[Any]]

WIDTH: Final = 100
_ALIASES: Final = [
    (name, vars(datatypes)[name])
    for name in datatypes.__all__
    if not isinstance(vars(datatypes)[name], type)
]


class HandleKind(NamedTuple):
    """A kind of handles: of objects on a replica, for tasks or for threads, or within a batch."""

    base: type[Any]
    generic: bool
    definition: str
    returns: str
    body: str

    @property
    def suffix(self) -> str:
        return self.base.__name__


ON_REPLICA: Final = HandleKind(Handle, True, "async def", "Tag", "return await self.perform")
BLOCKING: Final = HandleKind(SyncHandle, True, "def", "Tag", "return self.perform")
IN_BATCH: Final = HandleKind(BatchHandle, False, "def", "None", "self.perform")


@dataclass
class Imports:
    """The imports that the classes written so far need."""

    names: set[tuple[str, str]] = field(default_factory=set)

    def name(self, module: str, name: str) -> str:
        """The name, imported from the module."""
        self.names.add((module, name))
        return name

    def of(self, value: type[Any]) -> str:
        """The name of a class."""
        name = value.__name__
        if value.__module__ == "builtins":
            return name
        public = getattr(datatypes, name, None) is value
        return self.name("crdtcast.datatypes" if public else value.__module__, name)

    def annotation(self, accepts: Any) -> str:
        """The source of a type: its public alias, if it has one."""
        for name, value in _ALIASES:
            if accepts == value:
                return self.name("crdtcast.datatypes", name)
        if accepts is Any:
            return self.name("typing", "Any")
        if accepts is None or accepts is NoneType:
            return "None"
        if accepts is Ellipsis:
            return "..."
        origin, arguments = get_origin(accepts), get_args(accepts)
        if origin is None:
            return self.of(accepts)
        if origin in (UnionType, Union):
            return " | ".join(map(self.annotation, arguments))
        if origin is Literal:
            chosen = ", ".join(map(quoted, arguments))
            return f"{self.name('typing', 'Literal')}[{chosen}]"
        return f"{self.of(origin)}[{', '.join(map(self.annotation, arguments))}]"

    def lines(self) -> list[str]:
        """The import statements: those of the standard library, and all others."""
        sections: dict[bool, list[str]] = {}
        for module in sorted({module for module, _ in self.names}):
            names = sorted((name for of, name in self.names if of == module), key=_order)
            is_ours = module.partition(".")[0] not in sys.stdlib_module_names
            line = f"from {module} import {', '.join(names)}"
            if len(line) > WIDTH:
                line = "\n".join([f"from {module} import (", *(f"    {n}," for n in names), ")"])
            sections.setdefault(is_ours, []).append(line)
        return ["\n".join(sections[section]) + "\n" for section in sorted(sections)]


def _order(name: str) -> tuple[int, str]:
    """The order within an import: constants, classes, functions."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name.lower()


def quoted(value: object) -> str:
    """A literal with the quotes of this package."""
    plain = isinstance(value, str) and not {"'", '"'} & set(value)
    return f'"{repr(value)[1:-1]}"' if plain else repr(value)


def handle_class(crdt: CRDT, kind: HandleKind, imports: Imports) -> str:
    """The source of one class. Raises ValueError if an operation has a name that a handle uses itself."""
    type_name = imports.of(crdt)
    base = imports.name(kind.base.__module__, kind.suffix)
    head = f"class {crdt.__name__}{kind.suffix}({base}{f'[{type_name}]' if kind.generic else ''}):"
    parts = [docstring(cleandoc(crdt.__doc__ or "").partition("\n\n")[0], 4)]
    for name, operation in crdt.OPERATIONS.items():
        if hasattr(kind.base, name):
            raise ValueError(f"{crdt.__name__}.{name}: each {kind.suffix} has a {name} already")
        for each in (name, *operation.names):
            if not each.isidentifier() or iskeyword(each):
                raise ValueError(f"{crdt.__name__}.{name}: {each!r} is not a name in Python")
        parts.append([*_method(name, operation, kind, imports)])
    return "\n".join([head, "\n\n".join("\n".join(part) for part in parts if part)]) + "\n"


def _method(name: str, operation: Operation, kind: HandleKind, imports: Imports) -> Iterable[str]:
    required = len(operation.names) - len(operation.defaults)
    defaults = [""] * required + [f" = {quoted(default)}" for default in operation.defaults]
    parameters = ["self"]
    for argument, check, default in zip(
        operation.names, operation.arguments, defaults, strict=True
    ):
        parameters.append(f"{argument}: {imports.annotation(accepted(check))}{default}")
    yield from laid_out(f"    {kind.definition} {name}", parameters, f" -> {kind.returns}:")
    yield from docstring(operation.doc, 8)
    yield from laid_out(f"        {kind.body}", [quoted(name), *operation.names], "")


def laid_out(begin: str, items: Sequence[str], end: str) -> list[str]:
    """Items in parentheses, on as many lines as needed, in the formatter's style."""
    line = f"{begin}({', '.join(items)}){end}"
    if len(line) <= WIDTH:
        return [line]
    margin = " " * (len(begin) - len(begin.lstrip()))
    inner = f"{margin}    {', '.join(items)}"
    between = [inner] if len(inner) <= WIDTH else [f"{margin}    {each}," for each in items]
    return [f"{begin}(", *between, f"{margin}){end}"]


def docstring(text: str, indent: int) -> list[str]:
    """The lines of a docstring; none if there is no text."""
    margin = " " * indent
    line = f'{margin}"""{" ".join(text.split())}"""'
    if not text or len(line) <= WIDTH + len('"""'):
        return [line] if text else []
    return [*wrap(line[:-3], WIDTH, subsequent_indent=margin), f'{margin}"""']


def _overload(name: str, kind: HandleKind) -> str:
    parameters = ["self", "name: str", f"crdt_type: type[{name}]"]
    head = laid_out("    def object", parameters, f" -> {name}{kind.suffix}: ...")
    return "\n".join(["    @overload", *head]) + "\n\n"


HANDLES_DOC: Final = '''"""Handles of the types of this package{use}: the operations of each as methods.

Generated: change the types, and run `python -m crdtcast.handle_source`.
"""
'''
OBJECTS: Final = '''class {objects}({owner}):
    """What has objects: `object` gives a handle, by the type of the object."""

{overloads}    @overload
    def object(self, name: str, crdt_type: type[C]) -> {suffix}[C]: ...

    def object(self, name: str, crdt_type: type[PureOpCRDT[Any]]) -> {suffix}[Any]:
        """The object called `name` of that type; its first operation, here or elsewhere, makes it.

        Raises TypeClashError if the name has another type.
        """
        return nearest(crdt_type, {table}, {suffix})(self, name, crdt_type)
'''
BATCH: Final = '''class {objects}({owner}):
    """What collects operations: `object` gives a handle, by the type of the object."""

{overloads}    @overload
    def object(self, name: str, crdt_type: type[PureOpCRDT[Any]]) -> {suffix}: ...

    def object(self, name: str, crdt_type: type[PureOpCRDT[Any]]) -> {suffix}:
        """The object called `name` of that type, to add operations for it to the batch."""
        return nearest(crdt_type, {table}, {suffix})(self, name, crdt_type)
'''


class HandleModule(NamedTuple):
    """A module of handles, of all types of this package.

    objects: the class whose `object` gives them, and the protocol below it.
    """

    path: str
    kind: HandleKind
    use: str
    table: str
    objects: str
    owner: type[Any]

    def source(self) -> str:
        imports = Imports({("typing", "Final"), ("collections.abc", "Mapping")})
        kind = self.kind
        crdts = sorted(known_types().values(), key=lambda crdt: crdt.__name__)
        classes = [handle_class(crdt, kind, imports) for crdt in crdts]
        for name in ("Any", "overload"):
            imports.name("typing", name)
        imports.name(self.owner.__module__, self.owner.__name__)
        imports.name("crdtcast.replica.handle", "nearest")
        imports.name(kind.base.__module__, kind.suffix)
        imports.of(PureOpCRDT)
        variable = []
        if kind.generic:
            imports.name("typing", "TypeVar")
            imports.name("crdtcast.causality.tags", "Tag")
            variable.append('C = TypeVar("C", bound=PureOpCRDT[Any])\n')
        names = [crdt.__name__ for crdt in crdts]
        entries = "".join(f"    {name}: {name}{kind.suffix},\n" for name in names)
        general = kind.suffix + ("[Any]" if kind.generic else "")
        objects = (OBJECTS if kind.generic else BATCH).format(
            objects=self.objects,
            owner=self.owner.__name__,
            overloads="".join(_overload(name, kind) for name in names),
            suffix=kind.suffix,
            table=self.table,
        )
        top = [HANDLES_DOC.format(use=self.use), *imports.lines(), *variable]
        below = [
            *classes,
            f"{self.table}: Final[Mapping[type[PureOpCRDT[Any]], type[{general}]]] = {{\n{entries}}}\n"
            '"""Of the types of this package."""\n',
            objects,
        ]
        return "\n\n".join(["\n".join(top), *below])


MODULES: Final = (
    HandleModule("replica/handles.py", ON_REPLICA, "", "HANDLES", "TypedObjects", ObjectOwner),
    HandleModule(
        "replica/batch_handles.py",
        IN_BATCH,
        " within a batch",
        "BATCH_HANDLES",
        "TypedBatch",
        BatchOwner,
    ),
    HandleModule(
        "sync/handles.py", BLOCKING, " for threads", "SYNC_HANDLES", "TypedSyncObjects", HandleOwner
    ),
)


def own_handles(crdts: Iterable[CRDT]) -> str:
    """The source of handle classes for types of other packages."""
    imports = Imports({("crdtcast", "Tag")})
    classes = [
        handle_class(crdt, kind, imports)
        for crdt in crdts
        for kind in (ON_REPLICA, BLOCKING, IN_BATCH)
    ]
    return "\n\n".join(["\n".join(imports.lines()), *classes])


def main(names: Sequence[str]) -> None:
    """Write the handles of this package, or print those of the named types."""
    if names:
        crdts = []
        for name in names:
            module, _, crdt = name.partition(":")
            crdts.append(getattr(import_module(module), crdt))
        print(own_handles(crdts), end="")
        return
    for written in MODULES:
        (Path(__file__).parent / written.path).write_text(written.source())


if __name__ == "__main__":
    main(sys.argv[1:])
