"""Tables and folders of receipts, as rows."""
