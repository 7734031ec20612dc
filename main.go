// Command postrider relays rows of a PostgreSQL outbox table to Kafka.
package main

func main() {}
