package badinput

import (
	"net/url"
	"testing"
)

var connectionMistakes = []mistake{
	{
		name: "host-unresolvable", about: "the host name in postgres.url does not exist",
		make: func(_ *testing.T, s *site) { s.url.Host = "db.invalid:5432"; s.url.RawQuery = "" },
		run:  retries, check: 69, advised: []string{"db.invalid", "postgres.url"},
	},
	{
		name: "password-wrong", about: "the password in postgres.url is not that of the role",
		make: func(t *testing.T, s *site) {
			s.sql(t, "postgres", `ALTER ROLE `+s.role+` PASSWORD 'another'`)
		},
		run: 77, check: 77, advised: []string{`user "postrider"`, "password", "postgres.url"},
		heal: func(t *testing.T, s *site, _ string) {
			s.sql(t, "postgres", `ALTER ROLE `+s.role+` PASSWORD '`+canary+`'`)
		},
	},
	{
		name: "role-unknown", about: "the role in postgres.url does not exist",
		make: func(_ *testing.T, s *site) {
			s.url.User = url.UserPassword("nobody_"+s.id, canary)
			s.masks["nobody_"+s.id] = "postrdier"
		},
		run: 77, check: 77, advised: []string{`user "postrdier"`},
	},
	{
		name: "database-unknown", about: "the database in postgres.url does not exist",
		make: func(_ *testing.T, s *site) { s.url.Path = "/nothing_" + s.id; s.masks["nothing_"+s.id] = "shpo" },
		run:  78, check: 78, advised: []string{`database "shpo"`, "postgres.url"},
		heal: func(_ *testing.T, s *site, _ string) { s.url.Path = "/" + s.database },
	},
	{
		name: "postgres-certificate-refused", about: "sslmode=verify-full, and the server's certificate comes from another authority than sslrootcert",
		make: func(t *testing.T, s *site) {
			s.url.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {s.file(t, "ca.pem", otherAuthority(t))}}.Encode()
		},
		run: retries, check: 78, advised: []string{"certificate", "sslrootcert"},
		heal: func(t *testing.T, s *site, _ string) { s.file(t, "ca.pem", string(certificates(t).authority)) },
	},
	{
		name: "postgres-certificate-name", about: "sslmode=verify-full, and the server's certificate is for another name",
		make: func(t *testing.T, s *site) {
			s.url.Host = "localhost:" + s.url.Port() // the certificate is for 127.0.0.1
			s.url.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {s.file(t, "ca.pem", string(certificates(t).authority))}}.Encode()
		},
		run: retries, check: 78, advised: []string{"certificate", "localhost"},
	},
	{
		name: "postgres-authority-missing", about: "the file that sslrootcert names does not exist",
		make: func(_ *testing.T, s *site) {
			s.url.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {"/etc/postrider/no-ca.pem"}}.Encode()
		},
		run: 78, check: 78, advised: []string{"sslrootcert"},
	},
	{
		name: "replication-missing", about: "the role may not replicate",
		make: func(t *testing.T, s *site) { s.sql(t, "postgres", `ALTER ROLE `+s.role+` NOREPLICATION`) },
		run:  77, check: 77, advised: []string{"ALTER ROLE", "REPLICATION"},
		heal: func(t *testing.T, s *site, advice string) {
			s.sql(t, "postgres", statement(t, advice, `ALTER ROLE [^;]* REPLICATION;`))
		},
	},
	{
		name: "replication-taken-away", about: "the slot exists, and the role may not replicate any more",
		make: func(t *testing.T, s *site) {
			s.sql(t, s.database, `SELECT pg_create_logical_replication_slot('`+s.slot+`', 'pgoutput')`)
			s.sql(t, "postgres", `ALTER ROLE `+s.role+` NOREPLICATION`)
		},
		run: 77, check: 77, advised: []string{"ALTER ROLE", "REPLICATION"},
		heal: func(t *testing.T, s *site, advice string) {
			s.sql(t, "postgres", statement(t, advice, `ALTER ROLE [^;]* REPLICATION;`))
		},
	},
}
