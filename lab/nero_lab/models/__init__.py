"""Models as in the paper and its appendix, and a small GPT."""
