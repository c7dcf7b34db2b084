"""Value formats, one a file; `slotstream.operators.codec` holds their contract."""
