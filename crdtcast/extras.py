"""Packages that only some parts of the library need: the extras of its installation."""


def lacks(extra: str, missing: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error of an import, with the extra that brings the module. A missing module of our own stays as it is."""
    module = (missing.name or "").partition(".")[0]
    if module in ("", "crdtcast"):
        return missing
    return ModuleNotFoundError(
        f"the module {module!r} is not installed: pip install 'crdtcast[{extra}]'",
        name=missing.name,
    )
