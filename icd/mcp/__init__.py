"""`icctl mcp`: the methods that an agent can use well, as tools of the Model Context Protocol.

    verbs     the row of the command; loads the SDK only when it runs
    offer     which methods are tools, which of them by default, and what is said about each
    tools     a method as a tool: description, schemas, examples, all made from its row
    project   which project is meant, by the roots of the client
    server    the SDK's server: lists, calls, resources; one process serves one client
    feed      tells those who subscribed that the log of events has grown

A call goes through `World.calls`, the same way as a command: to the daemon if there is one, else
in this process.  Only `server` and `feed` know the SDK, which is an extra (ADR 23).
"""
