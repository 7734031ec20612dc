// Package bench measures the relay: how fast it drains a backlog, how soon a row arrives at a steady rate, what it costs, and what its slot keeps
// while the database is busy with other things. Every run is audited row by row.
//
// The relay is a child process, so that its CPU and memory are its own; it is looked at from outside, through /metrics and /proc. What cannot be
// measured, because a part is on another machine or the system does not tell, is nil, never zero.
package bench
