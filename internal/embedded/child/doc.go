// Package child runs real servers as child processes: under an unprivileged user where a server
// refuses root, ended when this process dies, and with their last output kept for error messages.
//
//	process.go       Process: a child that ends with this process
//	process_linux.go the signal that ends it, on Linux
//	process_other.go without that signal
//	port.go          a free port for a server, which no other process takes
//	account.go       the user that a child runs as
//	output.go        the last lines that it printed
//	tempdir.go       directories that go with their owner
package child
