"""What is asked and what is written: pure data, no Beam, no vLLM, no Kafka."""
