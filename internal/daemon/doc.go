// Package daemon runs a relay as a process: it builds the relay from a configuration, connects
// packages that must not import each other, and answers over HTTP, to signals and to systemd.
//
//	run.go         Run: from the configuration to the end of the process
//	pipeline.go    Pipeline: the parts of a relay
//	routing.go     the router of a session, and what it reads from the database
//	snapshot.go    rows from before the slot
//	deadletters.go the dead-letter topic, and rows of dead letters, routed again
//	recover.go     publishes the rows that a lost slot did not deliver
//	prune.go       removes delivered rows
//	writeback.go   the task of [write_back]
//	existing.go    prints rows that are in the tables already
//	lost.go        what a lost slot has lost
//	dryrun.go      a relay with a temporary slot, and a position of the slot for slot advance
//	daemon.go      Daemon: the verdict of each second, and its receivers
//	page.go        the data of the status page, with check
//	trace.go       the search of the status page
//	admin.go       pause, resume and log level, on admin.listen
//	reload.go      SIGHUP and SIGUSR1
//	signals.go     SIGTERM and SIGINT
//	systemd.go     readiness, watchdog and status for systemd
package daemon
