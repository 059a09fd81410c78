"""One image: decoded, turned upright, fitted and encoded, within limits of time and memory."""
