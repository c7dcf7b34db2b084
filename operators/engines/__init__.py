"""What can run a read: vLLM, its CPU set-up, the transformers reference; one warm engine a process."""
