"""Versions of source files, by which a resumed build notices that one has changed."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from beam_jobs.sources.names import other_forms
from beam_jobs.sources.row import Row
from beam_jobs.storage import files

MISSING = "missing"  # there is no such file
UNKNOWN = "unknown"  # equal to no version


def source_versions(uris: Iterable[str]) -> dict[str, str]:
    """Returns the present version of each file, `MISSING` or `UNKNOWN`."""
    uris = list(dict.fromkeys(uris))
    return dict(zip(uris, files.map_paths(_version, uris), strict=True))


def in_existing_forms(
    rows: list[Row], versions: dict[str, str]
) -> tuple[list[Row], dict[str, str]]:
    """Looks for missing files under their names in other forms of Unicode.

    A table may spell reçu.jpg with one character for ç (NFC) where a Mac named the file with two
    (NFD).

    Args:
      rows: rows that name the files.
      versions: of `source_versions`.

    Returns:
      The rows, with the names that the files have, and the versions with those of these files.
    """
    missing = [uri for uri, version in versions.items() if version == MISSING]
    forms = source_versions(form for uri in missing for form in other_forms(uri))
    present = {uri: form for uri in missing for form in other_forms(uri) if forms[form] != MISSING}
    if not present:
        return rows, versions
    rows = [replace(row, uri=present[row.uri]) if row.uri in present else row for row in rows]
    return rows, {**versions, **{form: forms[form] for form in present.values()}}


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
