from django.urls import path

from compaction import views

SESSION = "sessions/<str:public_id>"
urlpatterns = [
    path(f"{SESSION}/requests/", views.Requests.as_view(), name="requests"),
    path(f"{SESSION}/turns/", views.Turns.as_view(), name="turns"),
    path(f"{SESSION}/turns/<int:number>/complete/", views.Complete.as_view(), name="complete"),
    path(f"{SESSION}/turns/<int:number>/overflow/", views.Overflow.as_view(), name="overflow"),
    path(f"{SESSION}/turns/<int:number>/request/", views.SentRequest.as_view(), name="sent-request"),
    path(f"{SESSION}/compactions/", views.Compactions.as_view(), name="compactions"),
    path(f"{SESSION}/compactions/<str:cid>/", views.OneCompaction.as_view(), name="compaction"),
    path(f"{SESSION}/export/", views.Export.as_view(), name="export"),
    path(f"{SESSION}/history/", views.History.as_view(), name="history"),
]
