// Package datapath is the kernel side of the provider: maps, programs, links, and
// where they are pinned, so that they outlive the process.
//
//	BPFFS/fairlead/INSTANCE/
//	    shared-1/      what every layout shares: socket storage, counters, bonds …
//	    layout-2-7/    the maps of one layout: version 2, made anew for the 7th time
//	    links/         one for each hook; what they run is replaced in place
//
// Maps that must grow are made anew in a directory of their own and filled, then
// the links are led to programs that use them. A crash at any moment leaves at
// least one directory that is whole, and links that use it.
package datapath
