// Package parts gives tests the real servers that they need: PostgreSQL and Kafka, from wherever this
// machine has them.
//
// In this order: an endpoint in the environment (POSTRIDER_TEST_POSTGRES, a superuser's URL;
// POSTRIDER_TEST_KAFKA, host:port,...), Docker when an engine answers, a plain process (PostgreSQL
// binaries fetched once; Kafka's jars through Maven on Java 17). Only for Kafka there is a last resort,
// an in-process broker, which is not the real thing and says so.
//
// A server is started by the first test of a package that asks and shared by the others, each of which
// gets a database or topics of its own. Tests that stop, kill or pause a server ask for an exclusive one.
//
// A package that uses this one has
//
//	func TestMain(m *testing.M) { parts.Main(m) }
//
// A test that needs a part which this machine cannot give is skipped, and what was missing is listed at
// the end of the run. POSTRIDER_TEST_REQUIRE=postgres,kafka,connect,chromium,promtool,mount,cgroup,output_plugin_libraries makes it fail instead.
//
// Kafka Connect with Debezium is always a plain process, on a real broker, and belongs to one test. Chromium is
// what the machine has installed, or POSTRIDER_TEST_CHROMIUM names.
package parts
