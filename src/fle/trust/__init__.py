"""How far a result can be trusted: `fle.trust.bounds` holds the guarantees of the paper."""
