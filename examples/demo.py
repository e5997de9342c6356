"""`fle demo`: from a bundled log and a policy file to a report, with the truth beside the estimate.

    python examples/demo.py                         one reward: keeping a pole upright
    python examples/demo.py --example reservoir     two rewards: floods and water shortage

The target policy never ran when the data was logged. The report is in demo/report.html.
"""

import sys

from fle.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
