"""Versions of source files, by which a resumed build notices that one has changed."""

from collections.abc import Iterable, Mapping

from beam_jobs.storage import files

MISSING = "missing"  # there is no such file
UNKNOWN = "unknown"  # equal to no version


def source_versions(uris: Iterable[str]) -> dict[str, str]:
    """Returns the present version of each file, `MISSING` or `UNKNOWN`."""
    uris = list(dict.fromkeys(uris))
    return dict(zip(uris, files.map_paths(_version, uris), strict=True))


def are_current(versions: Mapping[str, str]) -> bool:
    """Returns True if every file is known to be unchanged."""
    return UNKNOWN not in versions.values() and source_versions(versions) == versions


def _version(uri: str) -> str:
    try:
        state = files.state(uri)
    except ValueError:  # not a path of any file system
        return MISSING
    except Exception:  # a store that does not answer: the error comes when the file is read
        return UNKNOWN
    return f"{state.size_bytes}:{state.version}" if state else MISSING
