"""Your own classes by name, `module:Class`: on the command line, in a configuration file and in a schedule."""

import os
import sys
from importlib import import_module

from crdtcast.exceptions import ConfigurationError


def load_class(name: str) -> type[object]:
    """The class `module:Class`; modules are also searched in the current directory.

    Raises ConfigurationError if there is no such class.
    """
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found: object = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"cannot import the engine {name!r}: {error}: write module:Class"
        ) from error
    if not isinstance(found, type):
        raise ConfigurationError(f"the engine {name!r} is not a class")
    return found
