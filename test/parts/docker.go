package parts

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// errNoDocker means that no engine answers. The next source is then tried without a message.
var errNoDocker = errors.New("no Docker engine answers")

// dockerPool connects to the engine once.
var dockerPool = sync.OnceValues(func() (*dockertest.Pool, error) {
	if os.Getenv("DOCKER_HOST") == "" && os.Getenv("DOCKER_MACHINE_NAME") == "" {
		if _, err := os.Stat("/var/run/docker.sock"); err != nil {
			return nil, errNoDocker
		}
	}
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoDocker, err)
	}
	if err := pool.Client.Ping(); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoDocker, err)
	}
	return pool, nil
})

// containerLifetime is when the engine ends a container whose test binary was killed.
const containerLifetime = 30 * 60 // seconds

// runContainer starts a container that removes itself at its end. image is name:tag. hostPort on
// 127.0.0.1 leads to containerPort, such as "5432/tcp"; "0" lets the engine choose.
func runContainer(image, containerPort, hostPort string, env, cmd []string) (
	*dockertest.Resource, error) {
	pool, err := dockerPool()
	if err != nil {
		return nil, err
	}
	repository, tag := image, "latest"
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		repository, tag = image[:i], image[i+1:]
	}
	resource, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository:   repository,
		Tag:          tag,
		Env:          env,
		Cmd:          cmd,
		ExposedPorts: []string{containerPort},
		PortBindings: map[docker.Port][]docker.PortBinding{
			docker.Port(containerPort): {{HostIP: "127.0.0.1", HostPort: hostPort}},
		},
	}, func(host *docker.HostConfig) {
		host.AutoRemove = true
		host.RestartPolicy = docker.RestartPolicy{Name: "no"}
	})
	if err != nil {
		return nil, fmt.Errorf("run image %s: %w", image, err)
	}
	if err := resource.Expire(containerLifetime); err != nil {
		return nil, errors.Join(fmt.Errorf("limit the container's life: %w", err),
			resource.Close())
	}
	return resource, nil
}

// dockerFailed prints why an engine that answers does not provide a server, before the next source
// is tried, which takes longer.
func dockerFailed(what string, err error) {
	if !errors.Is(err, errNoDocker) {
		fmt.Fprintf(os.Stderr, "parts: Docker does not give %s, a plain process is tried: %v\n",
			what, err)
	}
}
