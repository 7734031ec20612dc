package parts

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/postrider/postrider/internal/embedded"
)

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

// prepareJars returns a directory with the jars that a pom asks for and all that they depend on,
// fetched once and kept in the user's cache. A changed pom is another set of jars.
func prepareJars(ctx context.Context, name string, files embed.FS, pomPath string) (string,
	error) {
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
