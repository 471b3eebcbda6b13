"""The agents' side: write our entries into an agent's own configuration, and remove them again.

jsonc.py changes a JSON document and leaves every other byte as it is; documents.py knows our
entries in it; agents.py is the table of agents; store.py reads and writes their files safely, and
remembers what they were; verbs.py has the command.

Promises
    - only our entries are added, and a second run changes nothing;
    - `setup`, then `setup --remove`, leaves the file as it was, byte for byte; if others have
      changed it meanwhile, all of their changes stay;
    - a file that we do not understand is refused and left unchanged.
"""
