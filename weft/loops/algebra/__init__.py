"""What loops carry: the table of algebras, and how the updates of a loop are recognised."""
