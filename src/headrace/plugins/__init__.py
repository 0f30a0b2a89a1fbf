"""What users and other packages bring along: how it is named, found and loaded, whatever it is.

The settings need this to know their sections, so it lies below them; `headrace.registry` says what is done with it.
"""

from headrace.plugins.modules import UnknownPlaceError, import_place, is_path, load_failure
from headrace.plugins.plugin import KINDS, Kind, Plugin, entry_points_of, find_plugins, load_plugin, origin_of

__all__ = [
    "KINDS",
    "Kind",
    "Plugin",
    "find_plugins",
    "load_plugin",
    "entry_points_of",
    "origin_of",
    "UnknownPlaceError",
    "import_place",
    "is_path",
    "load_failure",
]
