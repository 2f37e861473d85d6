"""What a check of a kernel found: as data (`found`), as text and as a page (`report`)."""
