"""Versions of source files, by which a resumed build sees that one has changed."""

from collections.abc import Iterable, Mapping

from beam_jobs.storage import files

MISSING = "missing"  # there is no such file
UNKNOWN = "unknown"  # equal to no version


def source_versions(uris: Iterable[str]) -> dict[str, str]:
    """Version of each file at this moment, `MISSING` or `UNKNOWN`."""
    uris = list(dict.fromkeys(uris))
    return dict(zip(uris, files.map_paths(_version, uris), strict=True))


def are_current(versions: Mapping[str, str]) -> bool:
    """True if every file is known to be as it was."""
    return UNKNOWN not in versions.values() and source_versions(versions) == versions


def _version(uri: str) -> str:
    try:
        state = files.state(uri)
    except ValueError:  # not a path of any file system
        return MISSING
    except Exception:  # a store that does not answer: whoever reads the file reports it
        return UNKNOWN
    return f"{state.size_bytes}:{state.version}" if state else MISSING
