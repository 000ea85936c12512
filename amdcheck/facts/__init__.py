"""What a machine is: one module a subject, a frozen record each, and `read` that fills it. Parsing lives only here."""
