"""Messages of libraries that Beam imports, hidden in the programs of this package."""

import logging
import warnings

_HIDDEN_LOGS = ("crcmod package not found", "apitools not found")


def hide_import_messages() -> None:
    """Hides what Beam and the clients it imports log and warn of while they are imported.

    They name packages that the build does not use, and Python versions that clients will no longer
    support in years to come. Filters are for the whole process, so only programs call this, before
    they import Beam: a program that imports `beam_jobs` keeps its own filters.
    """
    logging.getLogger().addFilter(lambda record: not record.getMessage().startswith(_HIDDEN_LOGS))
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.api_core")
