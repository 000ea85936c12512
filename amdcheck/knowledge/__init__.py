"""Tables of what AMD machines should be, each row with its source, and their typed loader."""
