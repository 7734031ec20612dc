// Command postrider relays rows of a PostgreSQL outbox table to Kafka.
package main

import (
	_ "embed"
	"os"

	"github.com/postrider/postrider/internal/cli"
)

//go:embed config.example.toml
var example string

func main() {
	os.Exit(cli.Main(cli.Process{
		Args:    os.Args[1:],
		Env:     os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Example: example,
	}))
}
