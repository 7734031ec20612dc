// Package daemon runs a relay as a process: it builds the relay from a configuration, connects
// packages that must not import each other, and answers over HTTP, to signals and to systemd.
//
//	run.go         Run: from the configuration to the end of the process
//	pipeline.go    Pipeline: the parts of a relay
//	snapshot.go    rows from before the slot
//	deadletters.go the dead-letter topic
//	gap.go         what a lost slot has lost
//	find.go        a position of the slot, for slot advance
//	reroute.go     rows of dead letters, routed again
//	dryrun.go      a relay with a temporary slot
//	daemon.go      Daemon: the verdict of each second, and who gets it
//	page.go        the data of the status page
//	pagecheck.go   check, for the page
//	admin.go       pause, resume and log level, on admin.listen
//	reload.go      SIGHUP and SIGUSR1
//	signals.go     SIGTERM and SIGINT
//	systemd.go     readiness, watchdog and status for systemd
package daemon
