package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"snapfs/cmd/internal/cli"
	"snapfs/internal/holder"
	"snapfs/internal/userns"
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
	case os.Geteuid() != 0 || !userns.Initial() && !mayServeEngines():
		return filepath.Join(s.Home, "docker", pluginName+".sock")
	}
	return filepath.Join(enginePlugins, pluginName+".sock")
}

// mayServeEngines reports whether this process may make sockets where engines look for them. Root of a user namespace may
// be a plain user of the machine.
func mayServeEngines() bool {
	dir := enginePlugins
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
	}
	return unix.Access(dir, unix.W_OK) == nil
}

// startPlugin makes the adapter for container engines and its socket, if volumes are served. What was served before and
// cannot be now is logged: programs that use workspaces wait for the daemon.
func (s *service) startPlugin() error {
	before, err := dockerplugin.Remembered(s.Home)
	if err != nil {
		s.log.Error("whether the daemon before served container engines is not known", "error", err)
	}
	path := s.pluginPath(before)
	if before != "" && path != before {
		s.leavePlugin(before)
	}
	if path == "" && err != nil && s.DockerPlugin == "" {
		return nil
	}
	if path == "" {
		return dockerplugin.Remember(s.Home, "")
	}
	s.plugin, err = dockerplugin.New(s.home, dockerplugin.Options{Log: s.log})
	if err == nil {
		err = s.listenPlugin(path)
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

// keptPluginName is the name by which the socket for container engines is kept.
const keptPluginName = holder.HomePrefix + "plugin"

// listenPlugin makes the socket for container engines, or goes on with that of the daemon before, and has the next daemon
// get it: engines wait in it while there is none.
func (s *service) listenPlugin(path string) error {
	kept := net.Listener(nil)
	at, err := daemon.PlaceOf(path)
	if err == nil {
		if kept, err = s.keptListener(keptPluginName, at); err != nil {
			s.log.Warn("the socket for container engines is made anew", "error", err)
		}
	}
	if u, ok := kept.(*net.UnixListener); ok {
		s.pluginSocket, err = daemon.GoOnService(path, dockerplugin.Patterns(), u)
	} else {
		s.pluginSocket, err = daemon.ListenService(path, dockerplugin.Patterns())
	}
	if err != nil {
		return err
	}
	s.pluginCopy, err = s.pluginSocket.File()
	if err == nil {
		err = s.keepListener(keptPluginName, s.pluginSocket.Place(), s.pluginCopy)
	}
	if err != nil {
		s.log.Warn("container engines are refused while a daemon that has died is started again", "error", err)
	}
	return nil
}

// leavePlugin takes away the socket that a daemon has left which died, and at which volumes are not served any more.
func (s *service) leavePlugin(path string) {
	at, err := daemon.PlaceOf(path)
	if err != nil {
		return // it ended in order
	}
	if kept, _ := s.keptListener(keptPluginName, at); kept != nil { // else it is not ours
		_ = kept.Close()
		_ = os.Remove(path)
	}
	if err := s.keeper.Forget(keptPluginName); err != nil {
		s.log.Warn("the socket for container engines is kept", "error", err)
	}
}

// pluginServices are the handlers for container engines.
func (s *service) pluginServices() []daemon.Service {
	if s.plugin == nil {
		return nil
	}
	var all []daemon.Service
	for _, pattern := range dockerplugin.Patterns() {
		all = append(all, daemon.Service{
			Pattern: pattern, Handler: s.plugin, Refuse: dockerplugin.Refuse, Lane: laneOf(dockerplugin.Lasts), Wait: dockerplugin.Wait,
		})
	}
	return all
}
