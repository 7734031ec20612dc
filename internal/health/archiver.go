package health

// archiver is the cause of a full disk by WAL that waits for archive_command or archive_library.
func archiver() cause {
	return cause{
		name:    "archiver",
		because: "WAL is not archived, and no limit bounds what waits for that",
		fix: "SELECT last_archived_wal, last_failed_wal, last_failed_time FROM pg_stat_archiver; " +
			"-- repair archive_command or archive_library; never delete files in pg_wal",
	}
}
