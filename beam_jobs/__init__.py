"""The build: receipt images to a dataset directory, as a Beam job. Imports no TensorFlow."""

import logging
import warnings

# Beam and the clients it imports talk as they are imported: of packages that the build does not
# use, and of the Python versions that the clients will support in years to come.
_CHATTER = ("crcmod package not found", "apitools not found")
logging.getLogger().addFilter(lambda record: not record.getMessage().startswith(_CHATTER))
warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.api_core")
