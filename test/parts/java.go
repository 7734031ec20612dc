package parts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
)

// javaProcess is a program in Java with a properties file. It has no process before its start.
type javaProcess struct {
	java   []string // flags
	class  string
	dir    string // everything of this process; removed by close
	remove func() error
	out    *child.Output
	*child.Process
}

func newJavaProcess(name, class string, java []string) (*javaProcess, error) {
	dir, remove, err := child.TempDir("", "postrider-"+name+"-")
	return &javaProcess{java: java, class: class, dir: dir, remove: remove, out: &child.Output{}}, err
}

func (j *javaProcess) propertiesFile() string { return filepath.Join(j.dir, "properties") }

func (j *javaProcess) start() (err error) {
	var me child.Account // neither Kafka nor Connect has anything against root
	cmd := me.Command("java", slices.Concat(j.java, []string{j.class, j.propertiesFile()})...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = j.dir, j.out, j.out
	j.Process, err = child.Start(cmd, syscall.SIGKILL)
	return err
}

// close ends the process, whatever its state, and removes its files.
func (j *javaProcess) close() (err error) {
	if j.Process != nil {
		err = j.Kill()
	}
	return errors.Join(err, j.remove())
}

func writeProperties(path string, properties map[string]string) error {
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", name, properties[name])
	}
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write properties: %w", err)
	}
	return nil
}

var javaMajor = regexp.MustCompile(`version "(\d+)`)

// checkJava returns an error with what to install, when there is no Java that Kafka runs on.
func checkJava(ctx context.Context) error {
	text, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("real Kafka needs Docker, or Java 17 and Maven, and Kafka Connect the "+
			"latter: run java: %w", err)
	}
	match := javaMajor.FindSubmatch(text)
	if match == nil {
		return fmt.Errorf("no version in what java -version prints: %q", text)
	}
	if major, _ := strconv.Atoi(string(match[1])); major < 17 {
		return fmt.Errorf("real Kafka needs Java 17 or newer, here is %s", match[1])
	}
	return nil
}

// prepareJars returns a directory with the jars of a pom and all that they depend on,
// fetched once and kept in the user's cache. A changed pom is another set of jars.
func prepareJars(ctx context.Context, name string, files embed.FS, pomPath string) (
	string, error) {
	cache, err := embedded.CacheDir()
	if err != nil {
		return "", err
	}
	pom, err := files.ReadFile(pomPath)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(pom)
	jars := filepath.Join(cache, fmt.Sprintf("%s-%x", name, sum[:4]))
	err = embedded.PrepareOnce(ctx, jars,
		func(tmp string) error { return fetchJars(ctx, name, pom, tmp) })
	return jars, err
}

// fetchJars has Maven copy the jars into dir.
func fetchJars(ctx context.Context, name string, pom []byte, dir string) error {
	file := filepath.Join(filepath.Dir(dir), "pom.xml")
	if err := os.WriteFile(file, pom, 0o600); err != nil {
		return fmt.Errorf("write pom.xml: %w", err)
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file,
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+dir)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch the jars of %s with Maven: %w\n%s", name, err,
			lastPart(string(output), 2000))
	}
	return nil
}

// javaFlags make a small process that is up soon rather than fast later.
func javaFlags(jars string) []string {
	return []string{
		"-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(jars, "*"),
	}
}
