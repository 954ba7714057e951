package main

import (
	"fmt"
	"os"
	"path/filepath"

	"snapfs/cmd/internal/cli"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/dockerplugin"
)

// enginePlugins is where container engines look for the sockets of plugins.
const enginePlugins = "/run/docker/plugins"

// pluginName is how the plugin is called, which is the driver of its volumes.
const pluginName = "snapfs"

// pluginPath is where volumes are served; "" for nowhere. before is where they were.
func (s *service) pluginPath(before string) string {
	switch {
	case s.DockerPlugin == "":
		return before
	case s.DockerPlugin == cli.PluginOff:
		return ""
	case s.DockerPlugin != cli.PluginOn:
		return s.DockerPlugin
	case os.Geteuid() != 0:
		return filepath.Join(s.Home, "docker", pluginName+".sock")
	}
	return filepath.Join(enginePlugins, pluginName+".sock")
}

// startPlugin makes the adapter for container engines and its socket, if volumes are served. What was served before and
// cannot be now is logged: programs that use workspaces wait for the daemon.
func (s *service) startPlugin() error {
	before, err := dockerplugin.Remembered(s.Home)
	if err != nil {
		s.log.Error("whether the daemon before served container engines is not known", "error", err)
	}
	path := s.pluginPath(before)
	if path == "" && err != nil && s.DockerPlugin == "" {
		return nil
	}
	if path == "" {
		return dockerplugin.Remember(s.Home, "")
	}
	s.plugin, err = dockerplugin.New(s.home, dockerplugin.Options{Log: s.log})
	if err == nil {
		s.pluginSocket, err = daemon.ListenService(path, dockerplugin.Patterns())
	}
	if err == nil {
		err = dockerplugin.Remember(s.Home, path)
	}
	if err != nil && path == before {
		s.log.Error("container engines are not served", "socket", path, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("serving volumes: %w", err)
	}
	s.log.Info("serving volumes to container engines", "socket", path)
	return nil
}

// pluginServices are the handlers for container engines.
func (s *service) pluginServices() []daemon.Service {
	if s.plugin == nil {
		return nil
	}
	var all []daemon.Service
	for _, pattern := range dockerplugin.Patterns() {
		all = append(all, daemon.Service{
			Pattern: pattern, Handler: s.plugin, Refuse: dockerplugin.Refuse, Lane: laneOf(dockerplugin.Lasts),
		})
	}
	return all
}
