"""The command line: `flambeau demo | run | bench | explain | cache | info`, one module each."""
