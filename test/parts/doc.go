// Package parts gives tests the real servers that they need, PostgreSQL and Kafka, from wherever
// this machine has them, and the binary of postrider.
//
// In this order: an endpoint in the environment (POSTRIDER_TEST_POSTGRES, a superuser's URL;
// POSTRIDER_TEST_KAFKA, host:port,...), Docker when an engine answers, a plain process (PostgreSQL
// binaries fetched once; Kafka's jars through Maven on Java 17). Only for Kafka there is a last
// resort, an in-process broker, which the run reports as a missing part.
//
// The first test of a package that needs a server starts it. The others share it, each with a
// database or topics of its own. Tests that stop, kill or pause a server use an
// exclusive one.
//
// A package that uses this one has
//
//	func TestMain(m *testing.M) { parts.Main(m) }
//
// A test that needs a part which this machine does not have is skipped, and the missing parts are
// listed at the end of the run. With POSTRIDER_TEST_REQUIRE it fails instead:
//
//	POSTRIDER_TEST_REQUIRE=postgres,kafka,connect,chromium,promtool,mount,cgroup,netns,\
//	output_plugin_libraries,krb5kdc,python,node,prisma,mvn,sqlc
//
// The last five are the runtimes of the programs in examples.
//
// Kafka Connect with Debezium is always a plain process, on a real broker, and belongs to one
// test. Chromium is the installed one, or that of POSTRIDER_TEST_CHROMIUM.
//
//	main.go           Main: the run of a package's tests
//	relay.go          Relay: a running postrider, its output and its end
//	statements.go     records the SQL statements that postrider sends
//	postgres.go       PostgreSQL, shared or of one test
//	traps.go          objects that stand in for those of PostgreSQL, to catch unqualified names
//	kafka.go          Kafka, shared or of one test
//	kafkaprocess.go   a broker as a plain process
//	kafkacluster.go   three of them, with TLS and SCRAM
//	cluster.go        in-process brokers of one test, with chosen answers and batches
//	gate.go           a listener that can be stalled
//	authority.go      certificates
//	oidc.go           a provider of tokens for OAUTHBEARER
//	kdc.go            Kerberos
//	topics.go         topics and their records
//	metrics.go        a page of metrics
//	connect.go        a worker of Kafka Connect with Debezium
//	java.go           Java programs, fetched with Maven
//	docker.go         servers in containers
//	proxy.go          Proxy: a network between client and server that fails on demand
//	programs.go       postrider, which it builds; Chromium, and Prometheus' promtool
//	race.go           whether the race detector is on
//	norace.go         that it is not
package parts
