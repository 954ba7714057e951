// Package holder keeps what the successor of a daemon needs, in a process of its own that does nothing else: descriptors
// by name, with a little data. A daemon that is killed leaves its mounts' connections alive there, and the lock of its
// home taken. The holder starts the daemon again, which takes everything over.
//
// # Process
//
// A home has one holder. The daemon starts it (Client) after it has locked the home: the program of the command, called
// Name, in a session of its own. It listens on a socket in the home and speaks the protocol below. One process at a time
// has the role of the daemon there, from "serve" until it says "leave" or has died; a second one gets a conflict. What is
// kept is given only to the process with the role. The names below "home/" are of the home itself: its lock and its
// socket. When nothing else is kept, the holder ends with the daemon.
//
// When the daemon dies without a word, the holder starts it again at once, as it was started: program, arguments,
// environment, in the directory /. It has the program as a descriptor, and looks up no path that could lie in a mount for
// which it keeps a descriptor: nobody would answer. A program below a mountpoint is found all the same, but parts of Go programs
// look it up by its path when they start: the daemon's should lie elsewhere. Should a service manager start the daemon, the holder does so only after
// managedWait. One that does not come to serve is started again after pauses that double, and after maxFailures
// of them not until somebody asks for it ("start"). One that was killed by SIGKILL is no such failure.
//
// A daemon that leaves for a successor has one that says "serve" with wait, or becomes it. Until that serves, the holder
// knows the one before: if the successor fails, or there is none when the one before has ended, it starts that again, also
// if nothing but what belongs to the home is kept.
//
// # Under a service manager
//
// A service manager can run the holder as a service of its own, with the arguments HOME and "managed". It makes its socket
// itself, starts no daemon, and ends by SIGTERM only: the service manager sees to the order. A daemon that finds it uses it
// like any other. When it ends under a daemon, that waits for the next one, and gives it everything. The program with
// "ended" in the place of "managed" is for the service manager to run after each daemon (ExecStopPost= of systemd): it
// tells the holder how that ended, also if it never came to ask for the role. With "pause" it is to be run before each
// (ExecStartPre=): it waits longer the more of them have failed in a row.
//
// # Protocol
//
// The socket is a SOCK_SEQPACKET: a message is one JSON document of at most maxMessage bytes, with at most MaxFiles
// descriptors. Each request has one response with its number. The first is "hello", with the range of protocol versions
// that the client speaks and the identity of the home: device and inode of its directory. A copy of a home has another
// one, and is refused, also if its socket is a hard link. Only the user that runs the holder, and root, may connect.
// Requests are answered in the order of their arrival by one thread, which never waits for a peer: who does not take a
// response is disconnected.
//
//	hello   from, to, home           protocol version, process
//	serve   start, wait; program     takes the role; why the daemons before died
//	starting name                    what the daemon does before it serves
//	ready   untold                   the daemon serves, and has noted the deaths before it unless they are untold
//	keep    name, data; files        replaces what was kept by that name
//	forget  name
//	get     name                     what is kept by the name
//	next    name                     what is kept by the next name in order
//	leave   end, to                  gives the role up: to a successor, which may wait for it, or the holder ends
//	yield                            the holder ends, because another one has everything
//	commit                           the holder that has everything is in charge
//	status                           what it does; anybody who may connect
//	start                            starts a daemon that is not there; anybody who may connect
//	drop                             the holder ends unless a daemon serves; anybody who may connect
//	ended name                       how a daemon of the service manager has ended; anybody who may connect
package holder
