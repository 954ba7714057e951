// Package dockerplugin serves workspaces as volumes of container engines: version 1 of Docker's protocol for volume
// plugins (docs.docker.com/engine/extend/plugins_volume), which Podman speaks, too. It is an adapter: it decodes, calls
// the sandbox API, and encodes.
//
// A volume names a workspace. One that was made with the volume is destroyed with it; any other is let go. While
// containers use a volume, its workspace is mounted: where it is mounted already, or else in the home. Engines give each
// use an id. A use may be mounted several times, and ends when it is unmounted as often; what an engine asks again, because
// the daemon ended before it answered, counts once. The last use ends the mount, if the plugin has made it.
//
// What must outlive the daemon is in the home, in the directory docker:
//
//	plugin.json           where the socket is, so that the next daemon serves it, too
//	volumes/NAME.json     a volume with the uses of this boot: see record
//
// A file is replaced before the engine has its answer. Uses of an earlier boot have ended with it. A use that an engine
// has forgotten holds nothing for ever: when all uses that are left are those of engines that have ended, and nothing in
// any mount namespace has the workspace mounted, they have ended, too; and a volume may be removed then in any case.
//
// The types of the protocol are declared here: the library that Docker offers for plugins listens by itself, takes bodies
// of any size, and gives no context to what it calls, so that requests could be neither bounded nor cancelled.
//
// Requests that change a volume take its lock, and call the service under it. The lock of the table of volumes is taken
// under that, and nothing else under the latter.
package dockerplugin
