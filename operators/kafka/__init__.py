"""Kafka in and out: consumer session, ReadTopic, WriteTopic."""
