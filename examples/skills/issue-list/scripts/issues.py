"""List the open issues of a repository."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("repository")
    parser.add_argument("--label", default="")
    options = parser.parse_args()
    token = os.environ.get("TRACKER_TOKEN")
    if not token:
        sys.exit("There is no token: vade secrets set TRACKER_TOKEN --skill issue-list")
    query = urllib.parse.urlencode({"state": "open", "labels": options.label})
    url = f"{options.address.rstrip('/')}/repos/{options.repository}/issues?{query}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            issues = json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"The tracker answered {error.code} for {options.repository}.")
    except OSError as error:
        sys.exit(f"The tracker cannot be reached ({error}).")
    for issue in issues:
        labels = ", ".join(label["name"] for label in issue.get("labels", []))
        print(f"#{issue['number']} {issue['title']}" + (f" [{labels}]" if labels else ""))
    print(f"{len(issues)} open issues")


main()
