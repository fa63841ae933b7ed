"""An entry for the NanoGPT speedrun's optimization track: the baseline file, with Nero as its optimizer."""
